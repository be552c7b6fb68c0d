"""JSON lines as a table: one object per line, nested objects as columns ``outer.inner``.

VW's and Personalizer's decision logs (dsjson) are such lines too. They become the columns ``EventId``,
``Timestamp``, ``action``, ``probability``, ``reward`` (minus the cost), ``candidates``, and one column per
shared feature, so that a column map says the rest: the user, sessions, metrics, events of a second table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from shpi.data._log.ledger import Drop
from shpi.data.tables.formats import text_of
from shpi.errors import DataError


def read_json_lines(file: Path) -> tuple[pl.DataFrame, tuple[Drop, ...]]:
    """The table in a file of JSON lines, and what was left out of it."""
    text, _ = text_of(file, "JSON")
    rows = list(_rows(text, file))
    if not rows:
        raise DataError(expected="at least one row", found="a file without JSON objects", where=str(file))
    if _is_decision_log(rows):
        return _decisions(text, file)
    flat = [_flatten(row) for _, row in rows]
    return _frame(flat, file), ()


def _rows(text: str, file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects with their line numbers; a single list of objects is accepted too."""
    if text.lstrip()[:1] == "[":
        values = _parsed(text, 1, file)
        lines = [(number, value) for number, value in enumerate(values)]
    else:
        lines = [
            (number, _parsed(line, number, file))
            for number, line in enumerate(text.split("\n"), start=1)
            if line.strip()
        ]
    for number, value in lines:
        if not isinstance(value, dict):
            raise DataError(
                expected="a JSON object on every line",
                found=type(value).__name__,
                where=f"line {number} of {file}",
            )
        yield number, value


def _parsed(text: str, line: int, file: Path) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(
            expected="a JSON object on every line",
            found=f"{error.msg} at character {error.pos + 1}",
            where=f"line {line} of {file}",
            remedy="repair or remove the line; a log that is still being written may end in half a line",
        ) from None


def _flatten(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            flat |= _flatten(inner, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = inner
    return flat


def _frame(rows: list[dict[str, Any]], file: Path) -> pl.DataFrame:
    names = list(dict.fromkeys(key for row in rows for key in row))
    columns = []
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns.append(pl.Series(name, values, strict=True))
        except (TypeError, pl.exceptions.PolarsError):
            columns.append(_mixed(name, values, file))
    return pl.DataFrame(columns)


def _mixed(name: str, values: list[Any], file: Path) -> pl.Series:
    """A column of mixed types: numbers become floats, lists become lists of text, anything else text."""
    plain = [value for value in values if value is not None]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in plain):
        return pl.Series(name, [None if value is None else float(value) for value in values])
    if any(isinstance(value, list) for value in plain):
        lists = [None if value is None else [str(item) for item in _listed(value)] for value in values]
        return pl.Series(name, lists, dtype=pl.List(pl.String))
    return pl.Series(name, [None if value is None else str(value) for value in values])


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# ---------------------------------------------------------------------- decision logs of VW


def _is_decision_log(rows: list[tuple[int, dict[str, Any]]]) -> bool:
    labelled = any("_label_cost" in row for _, row in rows)
    return labelled and any(isinstance(row.get("c"), dict) and "_multi" in row["c"] for _, row in rows)


def _decisions(text: str, file: Path) -> tuple[pl.DataFrame, tuple[Drop, ...]]:
    from shpi.data.adapters.dsjson import action_names, read_events

    events, drops, lines = read_events(text.split("\n"), user=None, name=str(file))
    if not events:
        reasons = "; ".join(f"{drop.rows} {drop.reason}" for drop in drops)
        raise DataError(
            expected="at least one labelled event",
            found=f"{lines} lines, none of them usable: {reasons}",
            where=str(file),
        )
    names = action_names(events, None)
    rows = []
    for event, candidates in zip(events, names, strict=True):
        own: dict[str, Any] = {
            "EventId": event.event_id,
            "Timestamp": None if event.time is None else event.time,
            "action": candidates[event.chosen],
            "probability": event.probability,
            "reward": -event.cost,
            "candidates": candidates,
        }
        rows.append(own | event.shared)
    frame = _frame(rows, file).with_columns(pl.col("Timestamp").cast(pl.Int64).cast(pl.Datetime("us")))
    return frame, tuple(drops)
