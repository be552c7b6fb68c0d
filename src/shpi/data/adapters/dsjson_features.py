"""The shared features of dsjson events as a context table, and constant action features as an action set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl

from shpi.data.actions import ActionSpace
from shpi.data.adapters.dsjson_events import Event, Value
from shpi.data.schema import ContextSchema, Feature
from shpi.protocols import Float32Array, Float64Array


def context_table(
    events: Sequence[Event], *, max_categories: int
) -> tuple[Float32Array, ContextSchema, tuple[str, ...]]:
    """Contexts [n, d] of the shared features, their schema and notes.

    dsjson is sparse: a number that is not written is 0, as in VW; a text that is not written counts as
    ``<other>``.
    """
    rows = [event.shared for event in events]
    features, notes, columns = [], [], {}
    for name in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(name) for row in rows]
        if all(value is None or isinstance(value, int | float) for value in values):
            features.append(Feature(name=name, missing="zero"))
            columns[name] = pl.Series(name, [None if v is None else float(v) for v in values], pl.Float64)
            continue
        texts = [None if value is None else str(value) for value in values]
        counts = Counter(text for text in texts if text is not None)
        kept = tuple(sorted(text for text, _ in sorted(counts.items(), key=_rank)[:max_categories]))
        if len(counts) > max_categories:
            notes.append(f"feature '{name}': {len(counts)} values, the {max_categories} most frequent kept")
        features.append(Feature(name=name, kind="categorical", categories=kept, missing="zero"))
        columns[name] = pl.Series(name, texts, pl.String)
    schema = ContextSchema(features=tuple(features))
    if not columns:
        return np.zeros((len(rows), 0), dtype=np.float32), schema, tuple(notes)
    return schema.encode_checked(pl.DataFrame(columns)), schema, tuple(notes)


def _rank(entry: tuple[str, int]) -> tuple[int, str]:
    """Most frequent first, equal counts in alphabetical order."""
    return -entry[1], entry[0]


def action_features(
    events: Sequence[Event], names: Sequence[Sequence[int | str]]
) -> tuple[ActionSpace, tuple[str, ...]]:
    """The action set, with the features that an action has in every event in which it is a candidate.

    A feature that changes between events (a price of the day, a user-item score) does not belong to the
    action itself; it is left out and named in a note.
    """
    ids: dict[int | str, dict[str, Value]] = {}
    changing: set[str] = set()
    for event, labels in zip(events, names, strict=True):
        for label, action in zip(labels, event.actions, strict=True):
            features = {key: value for key, value in action.items() if key != "_tag"}
            known = ids.setdefault(label, features)
            if known != features:
                changing |= {key for key in {*known, *features} if known.get(key) != features.get(key)}
    order = sorted(ids, key=lambda label: (isinstance(label, str), label))
    notes = (f"action features that change between events left out: {', '.join(sorted(changing))}",)
    fixed = [key for key in dict.fromkeys(k for row in ids.values() for k in row) if key not in changing]
    if not fixed:
        return ActionSpace(ids=tuple(order)), notes if changing else ()
    table, columns = _encode([ids[label] for label in order], fixed)
    space = ActionSpace(ids=tuple(order), features=table, feature_names=columns)
    return space, notes if changing else ()


def _encode(rows: Sequence[dict[str, Value]], keys: Sequence[str]) -> tuple[Float64Array, tuple[str, ...]]:
    """Numbers as they are (absent: 0), texts one-hot."""
    columns: dict[str, list[float]] = {}
    for key in keys:
        values = [row.get(key) for row in rows]
        if all(value is None or isinstance(value, int | float) for value in values):
            columns[key] = [float(value or 0.0) for value in values]
        else:
            for text in sorted({str(value) for value in values if value is not None}):
                columns[f"{key}={text}"] = [float(str(value) == text) for value in values]
    return np.array(list(columns.values()), dtype=np.float64).T, tuple(columns)
