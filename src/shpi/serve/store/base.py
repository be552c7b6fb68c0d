"""`Store`: the protocol of all stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from shpi.errors import ShpiError
from shpi.serve.store.records import Decision, Record, Reward

Listener = Callable[[Sequence[Record]], None]


class StoreUnavailableError(ShpiError):
    """Nothing can be made durable now: a full disk, a dead database. The caller may try again."""

    usual_remedy = "send the same request again, with the same id; if it lasts, look at the server's disk"


class Added(NamedTuple):
    """What the store holds under the id of a record: the record itself, or an earlier one."""

    record: Record
    new: bool


class Store(Protocol):
    """Durable records. Whatever ``add`` has returned survives a crash."""

    listener: Listener | None  # called with all records that were stored, in order

    def find(self, event_id: str) -> Awaitable[Decision | None]:
        """The decision with an id, once it is durable."""
        ...

    def knows(self, event_id: str) -> bool:
        """Whether a decision with this id is durable, as far as this process knows."""
        ...

    def rewards(self, event_id: str) -> Awaitable[tuple[Reward, ...]]:
        """The rewards of a decision so far."""
        ...

    def activated(self, event_id: str) -> Awaitable[bool]:
        """Whether a deferred decision was activated."""
        ...

    def add(self, record: Record) -> Awaitable[Added]:
        """Store a record, unless one with its id is there; raises `StoreUnavailableError`."""
        ...

    def next_seq(self) -> int:
        """A number larger than all earlier ones, for the order of decisions."""
        ...

    def scan(self) -> Iterator[Record]:
        """All durable records, oldest first."""
        ...

    def forget_before(self, moment: int) -> int:
        """Remove events older than a given time, in whole files or rows, and return how many."""
        ...

    async def close(self) -> None:
        """Finish pending writes and close."""
        ...
