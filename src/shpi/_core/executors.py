"""Executors of a pass: this process, or several processes of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from shpi.errors import ConfigError, ShpiError

A = TypeVar("A")
T = TypeVar("T")

WAITING = 2  # tasks per process that are submitted ahead, to keep it busy
RETRIES = 2  # restarts of a pass with new processes after one of them was killed


@runtime_checkable
class Executor(Protocol):
    """Maps a function over tasks, and gives the results as they arrive."""

    def run(self, function: Callable[[A], T], tasks: Sequence[A]) -> Iterator[tuple[int, T]]:
        """The number of each task and its result, in any order."""
        ...


@runtime_checkable
class Adder(Protocol):
    """An executor that can also add results where they were computed, in the tree of `shpi.passes.tree`."""

    def add_up(self, function: Callable[[A], T], tasks: Sequence[A], add: Callable[[T, T], T]) -> T:
        """The sum of the results of all tasks."""
        ...


@dataclass(frozen=True, kw_only=True)
class Serial:
    """One task after the other in this process."""

    def run(self, function: Callable[[A], T], tasks: Sequence[A]) -> Iterator[tuple[int, T]]:
        """The results in order."""
        for number, task in enumerate(tasks):
            yield number, function(task)


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Tasks in processes of this machine.

    Processes are spawned, not forked: a fork of a parent that has used polars hangs on its locks. So the
    function must be importable, and what it holds must be picklable. Each process uses one thread of BLAS.
    When a process is killed, new ones redo its unfinished tasks. Processes are kept for the next pass.

    Args:
        jobs: number of processes.
    """

    jobs: int = 2

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ConfigError(expected="at least one process", found=str(self.jobs), where="jobs")

    def run(self, function: Callable[[A], T], tasks: Sequence[A]) -> Iterator[tuple[int, T]]:
        """The results as they arrive."""
        left = dict(enumerate(tasks))
        for attempt in range(RETRIES + 1):
            try:
                for number, result in self._attempt(function, left):
                    del left[number]
                    yield number, result
            except BrokenProcessPool:
                if attempt == RETRIES:
                    raise _killed(len(left)) from None
                continue
            return

    def _attempt(self, function: Callable[[A], T], tasks: dict[int, A]) -> Iterator[tuple[int, T]]:
        queue = list(tasks.items())[::-1]
        running: dict[Future[T], int] = {}
        pool = _pool(self.jobs)
        try:
            while queue or running:
                while queue and len(running) < WAITING * self.jobs:
                    number, task = queue.pop()
                    running[pool.submit(_in_one_thread, function, task)] = number
                done, _ = wait_for(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield running.pop(future), future.result()
        except BrokenProcessPool:
            end_processes(wait=False)
            raise
        finally:
            for future in running:
                future.cancel()


# Processes are kept for the next pass: a new one spends about a second of processor time on imports. They
# keep the environment, folder and module path that they started with; after a change they are replaced.
_KEPT: dict[Hashable, ProcessPoolExecutor] = {}
_UNIMPORTANT = "PYTEST_CURRENT_TEST"  # changes with every test, without any effect


def _pool(jobs: int) -> ProcessPoolExecutor:
    environment = tuple(sorted((k, v) for k, v in os.environ.items() if k != _UNIMPORTANT))
    moment = (jobs, environment, Path.cwd(), tuple(sys.path))
    if moment not in _KEPT:
        end_processes(wait=False)
        _KEPT[moment] = ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn"))
    return _KEPT[moment]


def end_processes(*, wait: bool = True) -> None:
    """Shut down the processes that are kept for the next pass; ``wait`` until they have ended."""
    while _KEPT:
        _KEPT.popitem()[1].shutdown(wait=wait)


def _in_one_thread(function: Callable[[Any], Any], task: Any) -> Any:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        return function(task)


def _killed(left: int) -> ShpiError:
    return ShpiError(
        expected="processes that live until their shards are done",
        found=f"processes that were killed {RETRIES + 1} times, with {left} shards to do",
        remedy="the machine may be out of memory: use fewer --jobs or smaller shards",
    )


def executor_of(jobs: int | None) -> Executor:
    """The executor for a number of processes: None or 1 is this process."""
    return Serial() if jobs is None or jobs == 1 else Processes(jobs=jobs)
