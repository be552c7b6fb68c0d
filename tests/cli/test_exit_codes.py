"""Whatever goes wrong is one sentence and an exit code of its own, never a traceback."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from shpi.cli.main import EXIT_BUG, EXIT_MACHINE, EXIT_USAGE, main
from shpi.cli.verbs import audit as audit_verb
from shpi.files import engines

LOG = Path(__file__).parent.parent / "compat" / "v0_1" / "log.parquet"
MAP = 'user = "uid"\ntime = "ts"\naction = "item"\nreward = "r"\npropensity = "p"\ncontext = ["a"]\n'


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    def run(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(audit_verb, "read_logs", run)
    return main(["audit", str(LOG)])


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), EXIT_MACHINE, "No space left"),
        (OSError(errno.EROFS, "Read-only file system"), EXIT_MACHINE, "Read-only"),
        (MemoryError(), EXIT_MACHINE, "enough memory"),
        (pl.exceptions.ComputeError("boom in column 'x'"), EXIT_USAGE, "column 'x'"),
        (ZeroDivisionError("division by zero"), EXIT_BUG, "a bug in shpi"),
    ],
)
def test_every_exception_has_its_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    message: str,
) -> None:
    assert failing(monkeypatch, error) == code
    text = capsys.readouterr().err
    assert message in text
    assert "What to do" in text
    assert "Traceback" not in text


def test_the_traceback_of_a_bug_can_be_had(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHPI_TRACEBACK", "1")
    assert failing(monkeypatch, ZeroDivisionError()) == EXIT_BUG
    assert "Traceback" in capsys.readouterr().err


def test_only_engines_are_translated() -> None:
    assert engines.translated(KeyError("x")) is None
    assert engines.translated(BrokenPipeError(errno.EPIPE, "pipe")) is None


def test_a_full_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "shpi", "audit", str(LOG)],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == EXIT_MACHINE
    assert b"Traceback" not in done.stderr


def test_odd_numbers_and_infinite_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = LOG.parent / "policy-nested"
    assert main(["evaluate", str(policy), str(LOG), "--k", "²"]) == EXIT_USAGE
    assert "k to be a number" in capsys.readouterr().err
    frame = pl.DataFrame(
        {
            "uid": [1, 2, 3], "ts": [0, 0, 0], "item": ["x", "y", "x"],
            "r": [1e29, -1e29, 1e29], "p": [5e-324, 0.5, 0.5], "a": [1.0, 2.0, 3.0],
        }
    )  # fmt: skip
    frame.write_parquet(tmp_path / "t.parquet")
    (tmp_path / "map.toml").write_text(MAP)
    words = ["audit", str(tmp_path / "t.parquet"), "--columns", str(tmp_path / "map.toml"), "--json"]
    assert main(words) in (0, 1)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(capsys.readouterr().out, parse_constant=refuse)


def test_workers_end_with_the_process_that_started_them() -> None:
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-m', 'shpi.experiments._run.worker'], stdin=subprocess.PIPE,"
        " stdout=subprocess.PIPE, start_new_session=True)\n"
        "print(p.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    reader, writer = os.pipe()  # a second handle on the worker's life: its standard error
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writer)
    os.close(writer)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    time.sleep(2)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        if "State:\tZ" in Path(f"/proc/{worker}/status").read_text():
            break
        time.sleep(0.1)
    os.close(reader)
    gone = not Path(f"/proc/{worker}").exists()
    assert gone or "State:\tZ" in Path(f"/proc/{worker}/status").read_text()
