"""The same bytes for the same input, whatever the threads, processes, hash seed and order of the rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


def run(threads: int, hash_seed: str, *arguments: str) -> dict[str, str]:
    environment = os.environ | dict.fromkeys(THREADS, str(threads)) | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-m", "tests.determinism.work", *arguments],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    digests: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return digests


def test_threads_processes_hash_seed_and_row_order_change_nothing() -> None:
    with ThreadPoolExecutor(2) as pool:
        first, other = pool.map(lambda case: run(*case), [(1, "1"), (3, "2", "shuffle", "processes")])
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one core: there is nothing to compare")
    assert first == other
