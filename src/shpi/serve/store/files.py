"""`FileStore`: records in the segment files of a folder, made durable in groups, each id stored once.

While one group is flushed to the disk, the next one gathers: 32 waiting requests cost one flush. Then
`FlushDelay` decides how long to wait for the next requests of the callers just answered. A record is in the
index once it is durable. Until then its id is *pending*: a second request with this id waits for the same
flush, and gets the same answer or the same error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from shpi.errors import DataError
from shpi.serve.store.base import Added, Listener, StoreUnavailableError
from shpi.serve.store.flush_delay import FlushDelay
from shpi.serve.store.frames import HEAD, head
from shpi.serve.store.group import Done, Group, Writer
from shpi.serve.store.journal import SEGMENT_BYTES, Journal, Place, read_journal, segment_of
from shpi.serve.store.records import Activation, Decision, Record, Reward, decode, encode

_MOST_WAITING = 32 * 2**20  # bytes that may wait for the disk


def read_records(folder: Path) -> Iterator[Record]:
    """All durable records of a folder, oldest first; for a process that only reads."""
    for place, payload in read_journal(folder):
        yield _decoded(payload, place)


def _decoded(payload: bytes, place: Place) -> Record:
    try:
        return decode(payload)
    except msgspec.DecodeError as error:
        raise DataError(
            expected="a record of this version of shpi",
            found=str(error),
            where=f"segment {place >> 40}, byte {place & (1 << 40) - 1}",
            remedy="read the folder with the version of shpi that wrote it",
        ) from None


class FileStore:
    """The store of one server on one machine."""

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder = folder
        self.listener: Listener | None = None
        self.gather: Callable[[], None] | None = None  # called before a flush, to add what waits for it
        self._journal = Journal(folder, segment_bytes=segment_bytes)
        self._decisions: dict[str, Place] = {}
        self._rewards: dict[str, list[Place]] = {}  # by event
        self._reward_ids: dict[str, Place] = {}
        self._activated: set[str] = set()
        self._newest: dict[int, int] = {}  # by segment: the time of its latest record
        self._pending: dict[str, tuple[Record, Group]] = {}
        self._waiting: Group | None = None
        self._waiting_bytes = 0
        self._flushing = self._called = False  # a group is being written; a flush is scheduled
        self._delay = FlushDelay()
        self._arrived = 0  # requests since the last flush began
        self._held: asyncio.TimerHandle | None = None  # timer that ends the wait for more requests
        self._seq = 0
        self.last_time = 0
        self.failing = False  # the last flush failed
        self.orphans = 0  # rewards whose decision is unknown
        for place, payload in read_journal(folder):
            self._remember(_decoded(payload, place), place)
        self._writer = Writer(self._journal, self._flushed)

    @property
    def cut_bytes(self) -> int:
        """Bytes of a torn end that were cut off when the store was opened."""
        return self._journal.cut_bytes

    def __len__(self) -> int:
        return len(self._decisions)

    def next_seq(self) -> int:
        """A number larger than all earlier ones."""
        self._seq += 1
        return self._seq

    # ------------------------------------------------------------------ reading

    def _remember(self, record: Record, place: Place) -> None:
        segment, time = segment_of(place), record.time
        if time > self._newest.get(segment, 0):
            self._newest[segment] = time
        event_id = record.event_id
        if type(record) is Decision:
            self._decisions[event_id] = place
            self._seq = max(self._seq, record.seq)
            self.last_time = max(self.last_time, time)
            if event_id in self._rewards:
                self.orphans -= len(self._rewards[event_id])
        elif type(record) is Reward:
            self._reward_ids[record.key] = place
            self._rewards.setdefault(event_id, []).append(place)
            self.orphans += event_id not in self._decisions
        else:
            self._activated.add(event_id)

    async def find(self, event_id: str) -> Decision | None:
        """The decision with an id, once it is durable."""
        pending = self._pending.get(event_id)
        if pending is not None:
            await pending[1].wait()
            return pending[0]  # type: ignore[return-value]
        place = self._decisions.get(event_id)
        if place is None:
            return None
        record = decode(self._journal.read(place))
        assert isinstance(record, Decision)
        return record

    def knows(self, event_id: str) -> bool:
        """Whether a decision with this id is durable."""
        return event_id in self._decisions

    def has(self, event_id: str) -> bool:
        """Whether a decision with this id is durable or pending."""
        return event_id in self._decisions or event_id in self._pending

    async def rewards(self, event_id: str) -> tuple[Reward, ...]:
        """The rewards of a decision so far."""
        places = self._rewards.get(event_id, ())
        return tuple(decode(self._journal.read(place)) for place in places)  # type: ignore[misc]

    async def activated(self, event_id: str) -> bool:
        """Whether a deferred decision was activated."""
        return event_id in self._activated

    def scan(self) -> Iterator[Record]:
        """All durable records, oldest first."""
        return read_records(self.folder)

    # ------------------------------------------------------------------ adding

    def _key(self, record: Record) -> str:
        if type(record) is Decision:
            return record.event_id
        return record.key if isinstance(record, Reward) else f"{record.event_id}\nactivated"

    async def add(self, record: Record) -> Added:
        """Store a record, unless one with its id is there."""
        key = self._key(record)
        pending = self._pending.get(key)
        if pending is not None:
            await pending[1].wait()
            return Added(pending[0], False)
        earlier = self._earlier(record, key)
        if earlier is not None:
            return Added(earlier, False)
        group = self._enqueue({key: record})
        self.call_flush()
        await group.wait()
        return Added(record, True)

    def submit(self, record: Record, done: Done) -> bool:
        """Store a record and call ``done`` once it is durable; if its id is known, just return False.

        Works without a coroutine. Raises `StoreUnavailableError` if too much is waiting for the disk.
        """
        key = self._key(record)
        if key in self._pending or self._knows(record, key):
            return False
        self._enqueue({key: record})
        self.on_durable(done)
        self.call_flush()
        return True

    def put_each(self, decisions: Sequence[Decision]) -> list[bool]:
        """Add decisions to the waiting group; False for each known id.

        `on_durable` reports when the group is durable. Raises `StoreUnavailableError`, and adds none, if too
        much is waiting for the disk.
        """
        known, pending = self._decisions, self._pending
        new: dict[str, Decision] = {}
        for decision in decisions:
            event_id = decision.event_id
            if event_id not in pending and event_id not in known:
                new.setdefault(event_id, decision)
        if new:
            self._enqueue(new)
        return [new.get(decision.event_id) is decision for decision in decisions]

    def on_durable(self, done: Done) -> None:
        """Call ``done`` once the waiting group is durable."""
        assert self._waiting is not None
        self._waiting.waiters.append(done)

    def _knows(self, record: Record, key: str) -> bool:
        if type(record) is Decision:
            return key in self._decisions
        return key in self._reward_ids if isinstance(record, Reward) else record.event_id in self._activated

    def _earlier(self, record: Record, key: str) -> Record | None:
        if not self._knows(record, key):
            return None
        if isinstance(record, Activation):
            return record
        known = self._decisions if isinstance(record, Decision) else self._reward_ids
        return decode(self._journal.read(known[key]))

    def _enqueue(self, records: Mapping[str, Record]) -> Group:
        if self._waiting_bytes > _MOST_WAITING:
            raise StoreUnavailableError(expected="a disk that keeps up", found="too much that waits for it")
        if self._waiting is None:
            self._waiting = Group()
        group, size, pending = self._waiting, self._waiting_bytes, self._pending
        for key, record in records.items():
            payload = encode(record)
            group.records.append((key, record, size))  # offset in the group; it has no place before the flush
            group.frames += (head(payload), payload)
            size += HEAD + len(payload)
            pending[key] = (record, group)
        self._waiting_bytes = size
        return group

    def call_flush(self) -> None:
        """Count a request, and schedule a flush once the requests that are ready or expected have come."""
        self._arrived += 1
        if self._flushing or self._called:
            return
        if self._held is None or self._delay.all_arrived(self._arrived):
            self._called = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        if self._flushing:
            return
        if self._held is not None:
            self._held.cancel()
            self._held = None
            self._delay.record_wait(self._arrived)
        self._called = True  # what `gather` adds belongs to this flush
        try:
            if self.gather is not None:
                self.gather()
        finally:
            self._called = False
        group = self._waiting
        if group is None:
            return
        self._flushing, self._waiting, self._waiting_bytes, self._arrived = True, None, 0, 0
        self._writer.write(group, asyncio.get_running_loop())

    def _flushed(self, group: Group, first: Place, error: OSError | None) -> None:
        self._flushing = False
        self.failing = error is not None
        for key, _, _ in group.records:
            del self._pending[key]
        if error is None:
            for _, record, after in group.records:
                self._remember(record, first + after)
            if self.listener is not None:
                self.listener([record for _, record, _ in group.records])
        group.settle(None if error is None else _unavailable(error))
        seconds = self._delay.seconds_after_flush(len(group.records), self._arrived)
        if seconds:
            self._held = asyncio.get_running_loop().call_later(seconds, self._flush)
        else:
            self._flush()

    def forget_before(self, moment: int) -> int:
        """Remove files whose events are all older, and return how many; the file being written stays.

        A reward that outlives its decision becomes an orphan, and is removed with its own file.
        """
        old = {number for number, newest in self._newest.items() if newest < moment}
        old -= {self._journal.number}
        if not old or self._flushing:
            return 0
        gone = {event for event, place in self._decisions.items() if segment_of(place) in old}
        for event in gone:
            del self._decisions[event]
        self._activated -= gone
        self._reward_ids = {k: place for k, place in self._reward_ids.items() if segment_of(place) not in old}
        kept = {
            event: [place for place in places if segment_of(place) not in old]
            for event, places in self._rewards.items()
        }
        self._rewards = {event: places for event, places in kept.items() if places}
        self.orphans = sum(len(p) for event, p in self._rewards.items() if event not in self._decisions)
        for number in old:
            self._journal.remove(number)
            del self._newest[number]
        return len(old)

    async def close(self) -> None:
        """Finish pending writes and close."""
        while self._flushing or self._called or self._held is not None or self._waiting is not None:
            await asyncio.sleep(0.001)
        self._writer.close()
        self._journal.close()


def _unavailable(error: OSError) -> StoreUnavailableError:
    return StoreUnavailableError(
        expected="a disk that can be written",
        found=str(error),
        remedy="send the same request again, with the same id; free some space on the server",
    )
