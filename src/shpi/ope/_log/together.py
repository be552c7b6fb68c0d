"""Interleave several computations so that one pass over a log serves all of them.

An estimator is a plain function that requests passes as it goes: for sums, then for influences, then for the
variance that a fitted model adds. Ten estimators run one after the other make fifty passes. Here each runs
until it needs a pass; the requests are collected, and one pass answers all of them.

Each computation has a thread, and exactly one thread runs at a time: shared state needs no locks, and the
results do not depend on the machine. Parallel work happens in processes, within a pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(eq=False)
class _Fiber:
    """One computation, and the condition that it waits for."""

    work: Callable[[], Any]
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ready: Callable[[], bool] = lambda: True
    result: Any = None
    error: BaseException | None = None
    done: bool = False
    cancelled: bool = False
    thread: threading.Thread | None = None


class _Cancelled(BaseException):
    """Ends the thread of a computation that was abandoned after an error."""


@dataclass(eq=False)
class Scheduler:
    """Runs computations in turns; ``run_pass`` makes one pass for all requests collected so far."""

    run_pass: Callable[[list[Any]], None]
    _fibers: list[_Fiber] = field(default_factory=list, init=False)
    _requests: list[Any] = field(default_factory=list, init=False)
    _main: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0), init=False)
    _current: _Fiber | None = field(default=None, init=False)  # the computation whose turn it is, if any
    _making: set[Hashable] = field(default_factory=set, init=False)

    def run(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results in order; where a computation raised an exception, that exception."""
        fibers = [_Fiber(work) for work in works]
        self._fibers += fibers
        if self._current is not None:
            self._wait(lambda: all(fiber.done for fiber in fibers))
        else:
            try:
                while self._fibers:
                    ready = [fiber for fiber in self._fibers if fiber.ready()]
                    for fiber in ready:
                        self._resume(fiber)
                    self._fibers = [fiber for fiber in self._fibers if not fiber.done]
                    if not ready:
                        requests, self._requests = self._requests, []
                        assert requests, "computations wait for each other"
                        self.run_pass(requests)
            finally:
                for fiber in [fiber for fiber in self._fibers if fiber.thread is not None and not fiber.done]:
                    fiber.cancelled = True
                    self._resume(fiber)
                self._fibers, self._requests = [], []
        for fiber in fibers:
            if fiber.error is not None and not isinstance(fiber.error, Exception):
                raise fiber.error
        return [fiber.result if fiber.error is None else fiber.error for fiber in fibers]

    def wait_for(self, request: Any) -> None:
        """Wait until a pass has answered the request; outside of computations, make that pass now."""
        if self._current is None:
            self.run_pass([request])
        else:
            self._requests.append(request)
            self._wait(lambda: request.answered)

    def make_once(self, key: Hashable, make: Callable[[], T], known: dict[Hashable, Any]) -> T:
        """``known[key]``, made by the first that asks; other computations wait for it."""
        place = (id(known), key)
        while place in self._making:  # if ``make`` fails, the next computation tries
            self._wait(lambda: place not in self._making)
        if key not in known:
            self._making.add(place)
            try:
                known[key] = make()
            finally:
                self._making.discard(place)
        result: T = known[key]
        return result

    # ------------------------------------------------------------------ turns

    def _resume(self, fiber: _Fiber) -> None:
        self._current = fiber
        if fiber.thread is None:
            context = copy_context()
            fiber.thread = threading.Thread(target=context.run, args=(self._body, fiber), daemon=True)
            fiber.thread.start()
        else:
            fiber.turn.release()
        self._main.acquire()
        self._current = None
        if fiber.done:
            fiber.thread.join()

    def _body(self, fiber: _Fiber) -> None:
        try:
            fiber.result = fiber.work()
        except BaseException as error:
            fiber.error = error
        fiber.done = True
        self._main.release()

    def _wait(self, ready: Callable[[], bool]) -> None:
        fiber = self._current
        assert fiber is not None
        fiber.ready = ready
        self._main.release()
        fiber.turn.acquire()
        if fiber.cancelled:
            raise _Cancelled
