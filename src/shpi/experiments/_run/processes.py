"""Worker processes, each fed by a thread. A crashed worker is recorded as a failed cell and replaced."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

from shpi.experiments._run.cells import Cell, Outcome

# Matrices are small, so each process uses one thread.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

_Waiting = queue.SimpleQueue[Sequence[Cell]]
_Done = queue.SimpleQueue[tuple[Cell, Outcome] | None]  # None: a thread has finished


def outcomes(groups: Sequence[Sequence[Cell]], jobs: int) -> Iterator[tuple[Cell, Outcome]]:
    """Run groups of cells in ``jobs`` processes; the cells of a group stay together.

    When the caller stops early, for instance because of an interrupt, the processes are ended.
    """
    waiting, finished = _Waiting(), _Done()
    for group in groups:
        waiting.put(group)
    workers = [_Worker() for _ in range(min(jobs, len(groups)))]
    for worker in workers:
        threading.Thread(target=worker.feed, args=(waiting, finished), daemon=True).start()
    working = len(workers)
    try:
        while working:
            item = finished.get()
            if item is None:
                working -= 1
            else:
                yield item
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A worker process, started when needed and replaced after a crash."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._ended = threading.Event()

    def feed(self, waiting: _Waiting, finished: _Done) -> None:
        """Run groups of cells until none is left."""
        while not self._ended.is_set():
            try:
                group = waiting.get_nowait()
            except queue.Empty:
                break
            for cell in group:
                if self._ended.is_set():
                    break
                finished.put((cell, self._run(cell)))
        finished.put(None)

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self._ended.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()

    def _run(self, cell: Cell) -> Outcome:
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        answer = ""
        with suppress(OSError):  # the process has died: there is no answer
            process.stdin.write(cell.to_json() + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        return Outcome(**json.loads(answer)) if answer.endswith("\n") else self._death(process)

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "shpi.experiments._run.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=dict(os.environ) | ONE_THREAD,
            text=True,
            encoding="utf-8",
        )

    def _death(self, process: subprocess.Popen[str]) -> Outcome:
        code = process.wait()
        self._errors.seek(0)
        last = self._errors.read().strip().splitlines()[-1:] or ["no message"]
        why = "ended by the system, perhaps for want of memory" if code < 0 else last[0]
        return Outcome(message=f"the process ended with code {code}: {why}")
