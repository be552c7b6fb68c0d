"""Group commit: records that are flushed to the disk together, and the thread that flushes them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread

from shpi.serve.store.base import StoreUnavailableError
from shpi.serve.store.journal import Journal, Place
from shpi.serve.store.records import Record

Done = Callable[[StoreUnavailableError | None], None]  # called with None once durable, or with the error


@dataclass(eq=False, slots=True)
class Group:
    """Records that are flushed together, and the callbacks that wait for them."""

    waiters: list[Done] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    records: list[tuple[str, Record, int]] = field(default_factory=list)  # key, record, offset in the group

    def wait(self) -> asyncio.Future[None]:
        """A separate future for each caller, so that a cancelled request does not cancel the others."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell(error: StoreUnavailableError | None) -> None:
            if mine.done():
                return
            if error is None:
                mine.set_result(None)
            else:
                mine.set_exception(error)

        self.waiters.append(tell)
        return mine

    def settle(self, error: StoreUnavailableError | None) -> None:
        """Call all waiters with the error, or None."""
        for waiter in self.waiters:
            waiter(error)


Flushed = Callable[[Group, Place, OSError | None], None]


class Writer:
    """A thread that appends groups to a journal, so that the event loop does not wait for the disk."""

    def __init__(self, journal: Journal, flushed: Flushed) -> None:
        """Start the thread.

        Args:
            journal: journal to append to.
            flushed: called in the event loop of the group, with the place of the group or an error.
        """
        self._journal, self._flushed = journal, flushed
        self._queue: SimpleQueue[tuple[Group, asyncio.AbstractEventLoop] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="shpi-store", daemon=True)
        self._thread.start()

    def write(self, group: Group, loop: asyncio.AbstractEventLoop) -> None:
        """Queue a group to be made durable."""
        self._queue.put((group, loop))

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            group, loop = work
            place, failed = 0, None
            try:
                if self._journal.full:
                    self._journal.rotate()
                place = self._journal.next_place
                self._journal.append(b"".join(group.frames))
            except OSError as error:
                failed = error
            with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits
                loop.call_soon_threadsafe(self._flushed, group, place, failed)

    def close(self) -> None:
        """End the thread after the queued groups."""
        self._queue.put(None)
        self._thread.join()
