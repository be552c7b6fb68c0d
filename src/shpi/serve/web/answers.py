"""Builds the answer to a rank request from the stored decision, so that a repeated request gets the same."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from shpi.protocols import Float64Array, Int64Array
from shpi.serve.decide.choice import Item
from shpi.serve.store.records import Decision

_LINES = msgspec.json.Encoder().encode_lines


class Ranked(msgspec.Struct, gc=False):
    """An item and its probability."""

    id: Item
    propensity: float


class RankAnswer(msgspec.Struct, gc=False):
    """What was decided. The ranking has the most likely candidates first, `server.ranking` of them."""

    event_id: str
    action: Item
    propensity: float
    ranking: list[Ranked]
    policy: str
    arm: str


def answer_of(decision: Decision, most: int) -> bytes:
    """The answer to a request as JSON.

    Args:
        decision: the stored decision.
        most: number of items in the ranking; 0: all.
    """
    return answers_of([decision], most)[0]


def answers_of(decisions: Sequence[Decision], most: int) -> list[bytes]:
    """The answers to several decisions; decisions over the same items are ranked together."""
    alike: dict[int, list[int]] = {}
    for number, decision in enumerate(decisions):
        alike.setdefault(id(decision.items), []).append(number)
    if len(alike) == 1:
        return _answers(decisions, most)
    answers: dict[int, bytes] = {}
    for numbers in alike.values():
        answers |= zip(numbers, _answers([decisions[number] for number in numbers], most), strict=True)
    return [answers[number] for number in range(len(decisions))]


def _answers(decisions: Sequence[Decision], most: int) -> list[bytes]:
    """The answers to decisions over the same items."""
    items = decisions[0].items
    stored = b"".join([decision.probs for decision in decisions])
    probs = np.frombuffer(stored, dtype="<f8").reshape(len(decisions), len(items))  # [n, C]
    order, greatest = ranked(probs, most or len(items))
    entries = list(map(Ranked, map(items.__getitem__, order.ravel().tolist()), greatest.ravel().tolist()))
    chosen = [decision.place for decision in decisions]
    propensities, length = probs[np.arange(len(chosen)), chosen].tolist(), order.shape[1]
    answers = [
        RankAnswer(
            decision.event_id,
            items[decision.place],
            propensity,
            entries[start : start + length],
            decision.policy,
            decision.arm,
        )
        for decision, propensity, start in zip(
            decisions, propensities, range(0, len(entries), length), strict=True
        )
    ]
    return _LINES(answers).splitlines()  # JSON contains no line breaks


def ranked(probs: Float64Array, most: int) -> tuple[Int64Array, Float64Array]:
    """The indices and values of the largest entries of each row, descending; ties keep their order."""
    negative = -probs
    order = negative.argsort(axis=1)[:, : most + 1]  # three times as fast as a stable sort
    greatest = _taken(probs, order)
    tied = np.logical_or.reduce(greatest[:, 1:] == greatest[:, :-1], axis=1).nonzero()[0]
    if len(tied):
        order[tied] = negative[tied].argsort(axis=1, kind="stable")[:, : most + 1]
        greatest[tied] = _taken(probs[tied], order[tied])
    return order[:, :most], greatest[:, :most]


def _taken(values: Float64Array, places: Int64Array) -> Float64Array:
    """Like `numpy.take_along_axis` along rows, but four times as fast."""
    starts = np.arange(0, values.size, values.shape[1])[:, None]
    return values.ravel().take(places + starts)
