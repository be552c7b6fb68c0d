"""A run that is ended from outside has its rows and its record, and goes on where it stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shpi.cli.main import main

PATIENCE = 600  # seconds: a busy machine is slow
CELLS = 5 + 2 * 3  # five exact policies, and three that are learned from each of two logs


@pytest.mark.usefixtures("cells_in_process")  # for the second run
def test_a_killed_run_is_recorded_and_goes_on(tmp_path: Path) -> None:
    words = ["reproduce", "example", "--quick", "--seeds", "2", "--jobs", "1", "--out", str(tmp_path)]
    run = subprocess.Popen(
        [sys.executable, "-m", "shpi", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    rows, began = tmp_path / "example.jsonl", time.monotonic()
    while not rows.exists() and run.poll() is None and time.monotonic() - began < PATIENCE:
        time.sleep(0.05)
    assert rows.exists(), f"no cell came to its end in {PATIENCE} seconds"
    os.kill(run.pid, signal.SIGTERM)
    assert run.wait(PATIENCE) != 0
    first = {json.loads(line)["cell"] for line in rows.read_text(encoding="utf-8").splitlines()}
    (record,) = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert 0 < record["cells_run"] <= len(first) + 1
    assert len(first) < CELLS

    assert main(words) == 0
    again = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))[-1]
    assert (again["cells_reused"], again["cells_run"]) == (len(first), CELLS - len(first))
