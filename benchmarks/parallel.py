"""Runs many independent trials in a few processes, with one line of progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Case = TypeVar("Case")
Outcome = TypeVar("Outcome")

WORKERS = int(os.environ.get("SHPI_WORKERS", "2"))
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # set to one thread per process


def each(
    work: Callable[[Case], Outcome], cases: Sequence[Case], title: str, workers: int = WORKERS
) -> list[Outcome]:
    """Results of ``work`` for every case, in order; fresh processes, so ``work`` must be at top level."""
    for name in THREADS:
        os.environ.setdefault(name, "1")
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, console=Console(stderr=True)) as progress,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
    ):
        task = progress.add_task(title, total=len(cases))
        futures = [pool.submit(work, case) for case in cases]
        try:
            for future in as_completed(futures):
                future.result()  # raises a failure at once
                progress.advance(task)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]
