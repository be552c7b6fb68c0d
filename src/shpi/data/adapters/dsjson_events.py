"""One line of a dsjson log: its label, its candidates and its features, checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from shpi.errors import DataError

Value = float | int | bool | str
TOLERANCE = 1e-4  # of comparisons: probabilities are logged as float32
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Event:
    """A labelled decision."""

    line: int
    event_id: str | None
    user: str | None
    time: int | None  # microseconds since 1970 UTC
    cost: float
    chosen: int  # position in actions, from 0
    probability: float
    probabilities: list[float] | None  # by position in actions
    pdrop: float
    shared: dict[str, Value]
    actions: list[dict[str, Value]]


@dataclass(frozen=True, kw_only=True)
class Skip:
    """Why a line is not a decision to learn from."""

    reason: str
    remedy: str


def read_event(line: str, *, number: int, where: str, user: str | None) -> Event | Skip:
    """Parse one line."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(
            expected="a JSON object on every line",
            found=f"{error.msg} at character {error.pos + 1}",
            where=where,
            remedy="repair or remove the line; a log that is still being written may end in half a line",
        ) from None
    if not isinstance(row, dict):
        raise DataError(expected="a JSON object on every line", found=type(row).__name__, where=where)
    skip = _skip(row)
    if skip is not None:
        return skip
    context = row.get("c")
    if not isinstance(context, dict) or not isinstance(context.get("_multi"), list) or not context["_multi"]:
        raise DataError(
            expected="the context 'c' with its list of actions '_multi'",
            found="a labelled event without them",
            where=where,
        )
    shared = _flatten({key: value for key, value in context.items() if not key.startswith("_")})
    actions = [_action(action, where) for action in context["_multi"]]
    chosen = _chosen(row, len(actions), where)
    probability = _number(row, "_label_probability", where)
    if not 0 < probability <= 1:
        raise DataError(expected="_label_probability in (0, 1]", found=str(probability), where=where)
    who = None
    if user is not None:
        if user not in shared:
            raise DataError(
                expected=f"the shared feature '{user}' (the user)", found="an event without it", where=where
            )
        who = str(shared.pop(user))
    return Event(
        line=number,
        event_id=row.get("EventId"),
        user=who,
        time=_time(row, where),
        cost=_number(row, "_label_cost", where),
        chosen=chosen,
        probability=probability,
        probabilities=_probabilities(row, len(actions), chosen, probability, where),
        pdrop=_pdrop(row, where),
        shared=shared,
        actions=actions,
    )


def _skip(row: Mapping[str, Any]) -> Skip | None:
    if "_outcomes" in row or "_slots" in (row.get("c") or {}):
        return Skip(
            reason="several slots in one decision (_slots)",
            remedy="write one event per slot, or learn from single-slot events",
        )
    if row.get("_skipLearn"):
        return Skip(reason="never shown (_skipLearn)", remedy="activate the event once its action is shown")
    if "_label_cost" not in row or "_label_probability" not in row:
        return Skip(reason="no label", remedy="join outcomes with their events before reading the log")
    return None


def _number(row: Mapping[str, Any], key: str, where: str) -> float:
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(expected=f"a finite number in '{key}'", found=repr(value), where=where)
    return float(value)


def _chosen(row: Mapping[str, Any], count: int, where: str) -> int:
    """The chosen action's position: ``_labelIndex`` counts from 0, ``_label_Action`` from 1."""
    index, action = row.get("_labelIndex"), row.get("_label_Action")
    labels = f"_labelIndex {index!r}, _label_Action {action!r}, {count} actions"
    if index is None and action is None:
        raise DataError(expected="'_labelIndex' or '_label_Action'", found="neither", where=where)
    if not all(value is None or isinstance(value, int) for value in (index, action)):
        raise DataError(expected="whole numbers as labels", found=labels, where=where)
    chosen = int(index) if index is not None else int(action or 0) - 1
    if not 0 <= chosen < count:
        raise DataError(expected="the label of one of the actions", found=labels, where=where)
    if action is not None and action != chosen + 1:
        raise DataError(expected="_label_Action = _labelIndex + 1", found=labels, where=where)
    return chosen


def _probabilities(
    row: Mapping[str, Any], count: int, chosen: int, probability: float, where: str
) -> list[float] | None:
    """``p`` put into the order of the actions; ``a`` says which action each entry belongs to."""
    order, values = row.get("a"), row.get("p")
    if order is None or values is None:
        return None
    if sorted(order) != list(range(1, count + 1)) or len(values) != count:
        raise DataError(
            expected=f"'a' to order the actions 1..{count}, and as many probabilities in 'p'",
            found=f"a = {order}, {len(values)} probabilities",
            where=where,
        )
    by_action = [0.0] * count
    for action, value in zip(order, values, strict=True):
        by_action[action - 1] = float(value)
    if abs(sum(by_action) - 1) > TOLERANCE:
        raise DataError(
            expected="probabilities 'p' that sum to 1", found=f"a sum of {sum(by_action):.6g}", where=where
        )
    if abs(by_action[chosen] - probability) > TOLERANCE:
        raise DataError(
            expected="_label_probability to be the entry of 'p' of the chosen action",
            found=f"{probability:.6g} against {by_action[chosen]:.6g}",
            where=where,
            remedy="check the writer of the log: a wrong propensity biases everything that follows",
        )
    return by_action


def _pdrop(row: Mapping[str, Any], where: str) -> float:
    value = _number(row, "pdrop", where) if "pdrop" in row else 0.0
    if not 0 <= value < 1:
        raise DataError(expected="a probability of drop 'pdrop' in [0, 1)", found=str(value), where=where)
    return value


def _time(row: Mapping[str, Any], where: str) -> int | None:
    """Microseconds since 1970 UTC; a time without a zone is UTC."""
    text = row.get("Timestamp")
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise DataError(expected="an ISO 8601 Timestamp", found=repr(text), where=where) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(microseconds=1)


def _action(action: Any, where: str) -> dict[str, Value]:
    if not isinstance(action, dict):
        raise DataError(expected="objects in '_multi'", found=type(action).__name__, where=where)
    features = _flatten({key: value for key, value in action.items() if not key.startswith("_")})
    if "_tag" in action:
        features["_tag"] = action["_tag"]
    return features


def _flatten(value: Any, name: str = "") -> dict[str, Value]:
    """Nested objects and lists as ``outer.inner`` and ``outer[0]``; keys with an underscore are VW's own."""
    if isinstance(value, dict):
        parts = [
            (f"{name}.{key}" if name else key, inner)
            for key, inner in value.items()
            if not key.startswith("_")
        ]
    elif isinstance(value, list):
        parts = [(f"{name}[{index}]", inner) for index, inner in enumerate(value)]
    else:
        return {} if value is None else {name: value}
    return {key: leaf for path, inner in parts for key, leaf in _flatten(inner, path).items()}
