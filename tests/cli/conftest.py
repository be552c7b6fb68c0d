"""Work that the command line gives to processes of its own, done here: starting one costs a second or more.

What a process adds (its memory and CPU time, its death, its end with its parent) has tests that start one:
``test_compare.py``, ``test_reproduce_kill.py``, ``experiments/test_runner.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from shpi.cli._compare.learn_job import main as do_job
from shpi.experiments._run import processes, worker
from shpi.experiments._run.cells import Cell, Outcome


@pytest.fixture
def learners_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learners of ``shpi compare``."""

    class Ended:
        returncode, stderr = 0, ""

    def run(arguments: list[str], **_options: Any) -> Ended:
        do_job(arguments[-1])
        return Ended()

    monkeypatch.setattr("shpi.cli.verbs.compare.subprocess.run", run)


@pytest.fixture
def cells_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of ``shpi reproduce``."""

    def attempt(_worker: processes._Worker, cell: Cell) -> Outcome:
        return worker.attempt(cell)

    monkeypatch.setattr(processes._Worker, "_run", attempt)
