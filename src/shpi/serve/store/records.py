"""The records of a store, as msgpack arrays: small, and readable by any msgpack library."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from shpi.protocols import Float64Array
from shpi.serve.decide.choice import Catalogue, Item

MAIN = "reward"  # name of the reward that learning and evaluation use


class Decision(msgspec.Struct, array_like=True, frozen=True, tag="d", gc=False):
    """One decision, with everything needed to repeat its answer."""

    event_id: str
    digest: bytes  # hash of the request, see `digest_of`
    user: str
    session: str | None
    previous: str | None  # id of the event before it, if the caller gave one
    time: int  # microseconds since 1970
    seq: int  # order of decisions, breaks ties of time
    context: bytes  # JSON, as it came
    items: list[Item]  # the candidates, in the caller's order or the policy's
    probs: bytes  # float64, little-endian: the probability of each item
    place: int  # index of the chosen item
    policy: str
    arm: str
    uniform: float  # the random number that was drawn
    deferred: bool = False  # counts only when activated
    features: bytes | None = None  # JSON: features of the candidates, by id
    shadow: tuple[str, float] | None = None  # another policy, and its probability of this action

    @property
    def action(self) -> Item:
        """The chosen item."""
        return self.items[self.place]

    @property
    def propensity(self) -> float:
        """The probability of the chosen item."""
        return float(self.distribution[self.place])

    @property
    def distribution(self) -> Float64Array:
        """The probability of each item [C]."""
        return np.frombuffer(self.probs, dtype="<f8")


class Activation(msgspec.Struct, array_like=True, frozen=True, tag="a", gc=False):
    """A deferred decision was shown after all."""

    event_id: str
    time: int


class Reward(msgspec.Struct, array_like=True, frozen=True, tag="r", gc=False):
    """One outcome of a decision."""

    event_id: str
    name: str
    reward_id: str
    value: float
    time: int  # when it happened
    digest: bytes

    @property
    def key(self) -> str:
        """The identity of a reward: one sent twice has the same key."""
        return f"{self.event_id}\n{self.name}\n{self.reward_id}"


Record = Decision | Activation | Reward

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: Any = msgspec.msgpack.Decoder(Record)


def encode(record: Record) -> bytes:
    """A record as bytes."""
    if type(record) is Decision and type(record.items) is Catalogue:
        record = replace(record, items=record.items.packed)  # the same bytes, without packing every item
    return _ENCODER.encode(record)


def decode(payload: bytes) -> Record:
    """A record from bytes; raises msgspec.DecodeError if they are not a record."""
    record: Record = _DECODER.decode(payload)
    return record


def digest_of(body: bytes) -> bytes:
    """A hash of a request's body: the same id with another digest is a conflict."""
    return blake2b(body, digest_size=8).digest()
