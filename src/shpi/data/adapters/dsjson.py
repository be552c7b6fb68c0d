"""Vowpal Wabbit's dsjson logs (decision service JSON, one event per line) to `LoggedData`.

    {"_label_cost": -1, "_label_probability": 0.8, "_label_Action": 2, "_labelIndex": 1,
     "Timestamp": "2026-01-01T00:00:00Z", "EventId": "e1", "a": [2, 1], "p": [0.8, 0.2], "pdrop": 0.0,
     "c": {"User": {"age": 30}, "_multi": [{"_tag": "news"}, {"_tag": "sport"}]}}

VW logs costs: reward = -cost. ``a`` counts actions from 1 and ``p`` follows the order of ``a``;
``_labelIndex`` counts from 0. The entries of ``_multi`` are the candidates of the decision.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from shpi.data._log import ragged
from shpi.data._log.ledger import Drop, Ledger
from shpi.data.actions import ActionSpace
from shpi.data.adapters.dsjson_events import Event, Skip, read_event
from shpi.data.adapters.dsjson_features import action_features, context_table
from shpi.data.durations import parse_duration
from shpi.data.logged import LoggedData
from shpi.errors import DataError
from shpi.protocols import BoolArray, Float64Array, Int64Array


def from_vw_dsjson(
    source: str | Path | Iterable[str],
    *,
    user: str | None = None,
    action_id: str | None = None,
    session_gap: str | None = None,
    max_categories: int = 50,
) -> LoggedData:
    """A log from dsjson lines.

    Lines without a label, with several slots, with ``_skipLearn``, or with an EventId seen before are
    left out and counted in the ledger. A line that is not JSON, or that contradicts itself, is an error.

    Args:
        source: A file (``.gz`` is unpacked), or the lines themselves.
        user: The shared feature that holds the user's id, for example ``"User.id"``; it leaves the
            context. Without it each event is its own user.
        action_id: The action feature that names an action, for example ``"_tag"`` or ``"i.id"``. Without
            it the name is ``_tag`` where every action has one, else the position in ``_multi``.
        session_gap: A pause of a user that is longer than this, e.g. ``"30m"``, starts a new session.
        max_categories: The most frequent values of a text feature that get a dimension of their own;
            the others share ``<other>``.
    """
    events, drops, lines_in = read_events(source, user=user)
    if not events:
        raise DataError(
            expected="at least one labelled event",
            found=f"{lines_in} lines, none of them usable: "
            + ("; ".join(f"{drop.rows} {drop.reason}" for drop in drops) or "no lines at all"),
        )
    events = _in_order(events)
    names = action_names(events, action_id)
    space, feature_notes = action_features(events, names)
    contexts, schema, context_notes = context_table(events, max_categories=max_categories)
    actions = space.index([names[i][event.chosen] for i, event in enumerate(events)])
    candidates, behaviour = _masks(events, names, space)
    offsets = _offsets(events)
    times = [event.time for event in events if event.time is not None]  # of all events, or of none
    drop_rates = np.array([event.pdrop for event in events])
    down_sampled = bool((drop_rates > 0).any())
    logs = LoggedData.from_arrays(
        contexts=contexts,
        schema=schema,
        actions=actions,
        action_space=space,
        rewards=[-event.cost for event in events],
        propensities=[event.probability for event in events],
        behaviour=behaviour,
        candidates=None if candidates.all() else candidates,
        offsets=offsets,
        session_offsets=_sessions(offsets, times, session_gap),
        users=np.array([event.line if user is None else event.user for event in events])[offsets[:-1]],
        times=times or None,
        time_unit="us" if times else "step",
        metrics={"sample_weight": 1 / (1 - drop_rates)} if down_sampled else {},
    )
    notes = (*feature_notes, *context_notes, *_pdrop_note(drop_rates))
    ledger = Ledger(rows_in=lines_in, rows_used=len(events), drops=tuple(drops), notes=notes)
    return replace(logs, ledger=ledger)


def _lines(source: str | Path | Iterable[str]) -> Iterator[str]:
    if not isinstance(source, str | Path):
        yield from source
        return
    path = Path(source)
    if not path.is_file():
        raise DataError(expected="a dsjson file", found=f"no file '{path}'")
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as stream:
            yield from stream
    except (EOFError, UnicodeDecodeError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(expected="a whole text file", found=str(error), where=str(path)) from None


def read_events(
    source: str | Path | Iterable[str], *, user: str | None, name: str | None = None
) -> tuple[list[Event], list[Drop], int]:
    """The usable events, what was left out by reason, and the number of lines that are not blank."""
    events: list[Event] = []
    drops: dict[str, Drop] = {}
    read_ids: set[str] = set()
    lines_in = 0
    name = name or (str(source) if isinstance(source, str | Path) else "dsjson")
    for number, line in enumerate(_lines(source), start=1):
        if not line.strip():
            continue
        lines_in += 1
        event = read_event(line, number=number, where=f"{name}, line {number}", user=user)
        if isinstance(event, Event):
            if event.event_id not in read_ids:
                events.append(event)
                read_ids |= set() if event.event_id is None else {event.event_id}
                continue
            event = Skip(reason="EventId seen before", remedy="the first line of an event is kept")
        old = drops.get(event.reason)
        first, rows = (number - 1, 1) if old is None else (old.example, old.rows + 1)
        drops[event.reason] = Drop(reason=event.reason, rows=rows, example=first, remedy=event.remedy)
    return events, list(drops.values()), lines_in


def _in_order(events: list[Event]) -> list[Event]:
    """By (user, time, line); events without users stay in the order of the file."""
    timed = [event for event in events if event.time is not None]
    if timed and len(timed) < len(events):
        missing = next(event for event in events if event.time is None)
        raise DataError(
            expected="a Timestamp in every event, or in none",
            found="an event without one",
            where=f"line {missing.line}",
        )
    return sorted(events, key=lambda event: (event.user or "", (event.time or 0) if event.user else 0))


def action_names(events: list[Event], action_id: str | None) -> list[list[int | str]]:
    """For each event, the names of its candidates."""
    key = action_id
    if key is None:
        tagged = all("_tag" in action for event in events for action in event.actions)
        if not tagged:
            return [list(range(len(event.actions))) for event in events]
        key = "_tag"
    names: list[list[int | str]] = []
    for event in events:
        labels = [action.get(key) for action in event.actions]
        if any(label is None for label in labels) or len(set(labels)) < len(labels):
            raise DataError(
                expected=f"a different '{key}' in every action",
                found=f"{labels}",
                where=f"line {event.line}",
                remedy="name another action feature with action_id, or remove repeated actions",
            )
        names.append([label if isinstance(label, int) else str(label) for label in labels])
    return names


def _masks(
    events: list[Event], names: list[list[int | str]], space: ActionSpace
) -> tuple[BoolArray, Float64Array | None]:
    """Which actions were candidates [n, A], and their probabilities [n, A] if every event has them."""
    candidates = np.zeros((len(events), len(space)), dtype=bool)
    logged = all(event.probabilities is not None for event in events)
    behaviour = np.zeros((len(events), len(space))) if logged else None
    for row, event in enumerate(events):
        positions = space.index(names[row])
        candidates[row, positions] = True
        if behaviour is not None:
            behaviour[row, positions] = event.probabilities
    return candidates, behaviour


def _offsets(events: list[Event]) -> Int64Array:
    starts = np.ones(len(events), dtype=bool)
    for row in range(1, len(events)):
        starts[row] = events[row].user is None or events[row].user != events[row - 1].user
    return ragged.offsets_from_starts(starts)


def _sessions(offsets: Int64Array, times: list[int], gap: str | None) -> Int64Array:
    if gap is None:
        return offsets
    if not times:
        raise DataError(expected="a Timestamp in every event, for session_gap", found="none")
    starts = np.append(True, np.diff(times) > parse_duration(gap))
    starts[offsets[:-1]] = True
    return ragged.offsets_from_starts(starts)


def _pdrop_note(drop_rates: Float64Array) -> tuple[str, ...]:
    if not (drop_rates > 0).any():
        return ()
    return (
        f"the log is down-sampled: probability of drop {drop_rates.mean():.3g} on average, up to "
        f"{drop_rates.max():.3g}; metric 'sample_weight' = 1 / (1 - pdrop)",
    )
