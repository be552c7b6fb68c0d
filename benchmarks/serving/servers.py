"""Servers as processes of their own: ours and the peer's, with their CPU seconds."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import numpy as np

from shpi.data.actions import ActionSpace
from shpi.data.schema import ContextSchema
from shpi.features import Chain, Identity, Standardise
from shpi.policies import LinearScorer, Policy, Tilted, save_policy
from shpi.policies.near_mu.logistic import LogisticPolicy
from shpi.serve.loop.control import Control
from shpi.serve.service import prepare

ACTIONS, WIDTH = 112, 47
NAMES = [f"f{n}" for n in range(WIDTH)]


def made_policy(seed: int = 0) -> Policy:
    """What SHPI returns by default, of the size of the paper's private task: 112 actions, 47 features."""
    rng = np.random.default_rng(seed)
    features = Chain((Standardise(), Identity())).fit(rng.normal(size=(500, WIDTH)))
    mu = LogisticPolicy(
        0.1 * rng.normal(size=(ACTIONS, features.width)), features, np.ones(ACTIONS, dtype=bool), 0.02
    )
    return Tilted(LinearScorer(rng.normal(size=(ACTIONS, features.width)), features), mu, 0.5)


def make_folder(folder: Path, toml: str = "") -> Path:
    """A service whose champion is that policy."""
    folder.mkdir(parents=True, exist_ok=True)
    if toml:
        (folder / "serve.toml").write_text(toml)
    prepare(folder)
    save_policy(
        made_policy(),
        folder / "policies" / "p1",
        schema=ContextSchema.numeric(NAMES),
        actions=ActionSpace(ids=tuple(f"item-{n}" for n in range(ACTIONS))),
    )
    Control.read(folder).with_canary("p1", "benchmark", 1).promoted("benchmark", 2).write(folder)
    return folder


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


class Server:
    """A process that listens; ``with Server(command, port)``."""

    def __init__(self, command: list[str], port: int, cwd: Path | None = None) -> None:
        self.command, self.port, self.cwd = command, port, cwd

    def __enter__(self) -> Server:
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=self.cwd
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                said = self.process.stderr.read().decode() if self.process.stderr else ""
                raise RuntimeError(f"the server ended: {said[-800:]}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the server does not listen")

    def cpu(self) -> float:
        """Its CPU seconds so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """As the system does it when memory runs out."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


def ours(folder: Path, port: int) -> Server:
    return Server([sys.executable, "-m", "shpi", "serve", str(folder), "--port", str(port)], port)
