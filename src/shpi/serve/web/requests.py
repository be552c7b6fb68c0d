"""The bodies of requests, parsed strictly: an unknown or misspelled field is an error."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from shpi.errors import DataError
from shpi.serve.decide.choice import Item
from shpi.serve.store.records import MAIN

EventId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._:~-]{1,128}$")]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Label = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Id = Label | int
_EARLIEST, _LATEST = 946_684_800, 4_102_444_800  # start of the years 2000 and 2100, in seconds since 1970


class Candidate(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An item that may be chosen, with features for the log if there are any."""

    id: Id
    features: dict[str, Any] | None = None


class Rank(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """A request for a decision."""

    user: Id
    event_id: EventId | None = None
    session: Label | None = None
    previous: EventId | None = None
    time: float | str | None = None
    context: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    candidates: list[Candidate | Label | int] | None = None
    exclude: list[Id] = []
    defer: bool = False

    def items(self) -> list[Item] | None:
        """The ids of the candidates, in the caller's order."""
        if self.candidates is None:
            return None
        return [
            candidate.id if isinstance(candidate, Candidate) else candidate for candidate in self.candidates
        ]

    def features(self) -> bytes | None:
        """The candidates' features as JSON, by id; None without any."""
        by_item = {
            str(candidate.id): candidate.features
            for candidate in self.candidates or ()
            if isinstance(candidate, Candidate) and candidate.features
        }
        return msgspec.json.encode(by_item) if by_item else None


class RewardBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """A reward of a decision."""

    value: float
    reward_id: Name | None = None
    at: float | str | None = None
    name: Name = MAIN


class RewardEntry(RewardBody, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A reward in a batch."""

    event_id: EventId


class ActivateEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An activation in a batch."""

    event_id: EventId


class Batch(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Many requests at once; each entry gets its own answer."""

    rank: list[msgspec.Raw] = []
    activate: list[msgspec.Raw] = []
    reward: list[msgspec.Raw] = []


RANK: Any = msgspec.json.Decoder(Rank)
REWARD: Any = msgspec.json.Decoder(RewardBody)
REWARD_ENTRY: Any = msgspec.json.Decoder(RewardEntry)
ACTIVATE_ENTRY: Any = msgspec.json.Decoder(ActivateEntry)
BATCH: Any = msgspec.json.Decoder(Batch)
EVENT_ID: Any = msgspec.json.Decoder(EventId)
_CONTEXT: Any = msgspec.json.Decoder(dict[str, Any])


def context_of(raw: msgspec.Raw) -> dict[str, Any]:
    """The context as a dict."""
    context: dict[str, Any] = _CONTEXT.decode(raw)
    return context


def moment(value: float | str | None, where: str) -> int | None:
    """Microseconds since 1970, from seconds since 1970 or an ISO date; None for None."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError:
            raise DataError(
                expected="seconds since 1970, or an ISO date", found="another text", where=where
            ) from None
        seconds = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    else:
        seconds = float(value)
    if not (math.isfinite(seconds) and _EARLIEST <= seconds <= _LATEST):
        raise DataError(
            expected="a time between the years 2000 and 2100, in seconds since 1970",
            found=f"{seconds:.6g}",
            where=where,
            remedy="divide milliseconds by 1000",
        )
    return round(seconds * 1e6)
