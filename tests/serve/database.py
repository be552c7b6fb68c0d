"""A Postgres of one's own, on a socket in a folder, for as long as a test runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

NOBODY = "nobody"  # Postgres refuses to run as root


def reason() -> str | None:
    """Why there can be no Postgres here; None if there can."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        return "no Postgres on this machine"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed"
    return None


class Postgres:
    """``with Postgres() as database: database.url``."""

    def __init__(self) -> None:
        self.user = NOBODY if os.getuid() == 0 else None

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command, user=self.user, cwd="/", capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stderr}{done.stdout}")

    def __enter__(self) -> Postgres:
        self.folder = Path(tempfile.mkdtemp(prefix="shpi-pg-", dir="/tmp"))
        if self.user is not None:
            shutil.chown(self.folder, self.user)
        self.data = self.folder / "data"
        self._run("initdb", "-D", str(self.data), "-U", "shpi", "--auth=trust", "-N")
        self.start()
        self.url = f"postgresql://shpi@/postgres?host={self.folder}"
        return self

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses='' -c max_connections=40"
        self._run(
            "pg_ctl", "-D", str(self.data), "-w", "-l", str(self.folder / "log"), "-o", options, "start"
        )

    def stop(self, how: str = "immediate") -> None:
        """As a crash does it, by default."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", how, "stop")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(
            ["pg_ctl", "-D", str(self.data), "-m", "immediate", "stop"],
            user=self.user,
            cwd="/",
            capture_output=True,
            check=False,
        )
        shutil.rmtree(self.folder, ignore_errors=True)
