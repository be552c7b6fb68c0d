"""Group commit: what is flushed to the disk together, and the thread that flushes it."""

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

Done = Callable[[StoreUnavailableError | None], None]  # is told that a record is durable, or why it is not


@dataclass(eq=False, slots=True)
class Group:
    """Records that are flushed together, and who waits for them."""

    waiters: list[Done] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    records: list[tuple[str, Record, int]] = field(default_factory=list)  # key, record, place in the group

    def wait(self) -> asyncio.Future[None]:
        """A future of one's own: a request that is cancelled must not take the others with it."""
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
        """Tell everybody."""
        for waiter in self.waiters:
            waiter(error)


Flushed = Callable[[Group, Place, OSError | None], None]


class Writer:
    """The thread that appends groups to a journal. The loop goes on while the disk works."""

    def __init__(self, journal: Journal, flushed: Flushed) -> None:
        """Start the thread.

        Args:
            journal: where groups go.
            flushed: is called in the loop that handed a group over, with its place or an error.
        """
        self._journal, self._flushed = journal, flushed
        self._queue: SimpleQueue[tuple[Group, asyncio.AbstractEventLoop] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="shpi-store", daemon=True)
        self._thread.start()

    def write(self, group: Group, loop: asyncio.AbstractEventLoop) -> None:
        """Make a group durable."""
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
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
                loop.call_soon_threadsafe(self._flushed, group, place, failed)

    def close(self) -> None:
        """End the thread, after what was handed over."""
        self._queue.put(None)
        self._thread.join()
