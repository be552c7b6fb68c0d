"""A run that is ended from outside has its rows and its record, and goes on where it stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 600  # seconds: the first cell is slow on a busy machine, and without numba


def test_a_killed_run_is_recorded_and_goes_on(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import sys; from shpi.cli.main import main; sys.exit(main(sys.argv[1:]))"]
    words += ["reproduce", "hiv", "--quick", "--jobs", "1", "--out", str(tmp_path)]
    words += ["--only", "logging", "bandit-mtr", "shpi"]  # those that run without torch
    run = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows, began = tmp_path / "hiv.jsonl", time.monotonic()
    while not rows.exists() and run.poll() is None and time.monotonic() - began < PATIENCE:
        time.sleep(0.05)
    assert rows.exists(), f"no cell came to its end in {PATIENCE} seconds"
    os.kill(run.pid, signal.SIGTERM)
    assert run.wait(PATIENCE) != 0
    first = {json.loads(line)["cell"] for line in rows.read_text(encoding="utf-8").splitlines()}
    (record,) = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert 0 < record["cells_run"] <= len(first) + 1

    assert subprocess.run(words, check=False, capture_output=True).returncode == 0
    again = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))[-1]
    assert again["cells_reused"] == len(first)
