"""Outcomes from a second table: purchases, opens, conversions, by user and time or by the decision's id.

An event belongs to decisions of the same user that came before it, by at most ``within``. ``touch`` says to
which of them: the "last", the "first", or "all" in equal shares, so that values add up to those of the
events. Events that follow no decision closely enough are left out and counted in a note.

The outcome of a decision is known only after ``within`` (plus ``late``, for events that are written with a
delay): decisions that are younger than that when the events end are left out, whatever their outcome.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shpi.data._log.futures import first_after
from shpi.data._read.sources import TableSource, open_table
from shpi.data._read.times import time_expression
from shpi.data.columns import Columns, missing_column
from shpi.data.durations import in_time_unit
from shpi.data.tables.events import Events
from shpi.errors import ColumnError, ConfigError, DataError
from shpi.protocols import Float64Array, Int64Array


def join_events(table: TableSource, columns: Columns) -> tuple[TableSource, Columns]:
    """The table, read into memory, with a column per outcome, and the map that names these as metrics."""
    if not columns.events:
        return table, columns
    frame = table.frame.collect()
    notes, until = list(table.notes), None
    for events in columns.events:
        if events.name in frame.columns:
            raise ColumnError(
                expected=f"a new name for the events '{events.name}'",
                found="a column of the log",
                where=table.label,
            )
        values, note, end = _outcome(frame, columns, events)
        frame = frame.with_columns(pl.Series(events.name, values))
        notes.append(note)
        until = end if until is None else end if end is None else min(until, end)
    names = tuple(events.name for events in columns.events)
    reward = columns.reward or names[0]
    joined = replace(table, frame=frame.lazy(), in_memory=frame, notes=tuple(notes), known_until=until)
    return joined, replace(columns, metrics=(*columns.metrics, *names), reward=reward, events=())


def _outcome(
    frame: pl.DataFrame, columns: Columns, events: Events
) -> tuple[Float64Array, str, int | float | None]:
    """The outcome of each row of the log [n], a note about it, and the time until which it is known."""
    source = open_table(events.table)
    happened = _selected(source, events)
    value = pl.lit(1.0) if events.value is None else pl.col(events.value).cast(pl.Float64)
    if events.id is not None:
        return _by_id(frame, happened.with_columns(__value=value), events, source.label)
    user = events.user or columns.user
    if user is None or columns.time is None or columns.user is None or events.time is None:
        raise ConfigError(
            expected="a user and a time in the column map, to join events by user and time",
            found="a map without them",
            remedy="name them, or join by the decision's id: id = …",
        )
    for name in (user, events.time):
        _need(happened, name, events, source.label)
    moment, calendar = time_expression(columns.time, frame.schema[columns.time], columns.time_unit)
    when, calendar_too = time_expression(events.time, happened.schema[events.time], columns.time_unit)
    if calendar != calendar_too:
        raise DataError(
            expected=f"times of the events '{events.name}' as in the log",
            found="timestamps in one and plain numbers in the other",
            where=f"column '{events.time}' of {source.label}",
        )
    rows = happened.select(user=pl.col(user).cast(pl.String), time=when, value=value)
    usable = rows.drop_nulls()
    log = frame.select(user=pl.col(columns.user).cast(pl.String), time=moment)
    unit: Literal["us", "step"] = "us" if calendar else "step"
    credit, matched = _attribute(log, usable, events, unit)
    note = f"{matched:,} of {rows.height:,} events '{events.name}' belong to a decision"
    note += f" within {events.within}" if events.within is not None else ""
    return credit, note, _known_until(log["time"], usable["time"], events, unit)


def _selected(source: TableSource, events: Events) -> pl.DataFrame:
    frame = source.frame.collect()
    for column, wanted in events.where.items():
        _need(frame, column, events, source.label)
        frame = frame.filter(pl.col(column).cast(pl.String) == str(wanted))
    if events.value is not None:
        _need(frame, events.value, events, source.label)
    return frame


def _need(frame: pl.DataFrame, column: str, events: Events, label: str) -> None:
    if column not in frame.columns:
        error = missing_column(f"the events '{events.name}'", column, frame.columns)
        raise ColumnError(
            expected=error.expected, found=error.found, where=f"{label}, [[events]]", remedy=error.remedy
        )


def _by_id(
    frame: pl.DataFrame, happened: pl.DataFrame, events: Events, label: str
) -> tuple[Float64Array, str, None]:
    assert events.id is not None
    _need(happened, events.id, events, label)
    own = events.decision_id or events.id
    _need(frame, own, events, "the log")
    if frame[own].is_duplicated().any():
        raise DataError(
            expected=f"a different '{own}' for every decision",
            found=f"{int(frame[own].is_duplicated().sum()):,} rows that share one",
            where="the log",
        )
    key = pl.col(own).cast(pl.String).alias("__key")
    sums = happened.group_by(pl.col(events.id).cast(pl.String).alias("__key")).agg(
        pl.col("__value").sum(), __events=pl.len()
    )
    joined = frame.select(key).join(sums, on="__key", how="left", maintain_order="left")
    matched = int(joined["__events"].fill_null(0).sum())
    note = f"{matched:,} of {happened.height:,} events '{events.name}' belong to a decision of the log"
    return joined["__value"].fill_null(0.0).to_numpy().copy(), note, None


def _attribute(
    log: pl.DataFrame, happened: pl.DataFrame, events: Events, unit: Literal["us", "step"]
) -> tuple[Float64Array, int]:
    """The value of each row of the log [n], and how many events were attributed."""
    labels = pl.concat([log["user"], happened["user"]]).cast(pl.Categorical).to_physical().to_numpy()
    mine, theirs = labels[: log.height].astype(np.int64), labels[log.height :].astype(np.int64)
    times = log["time"].to_numpy()
    order = np.lexsort((np.arange(log.height), times, mine))
    mine, times = mine[order], times[order]
    low = np.searchsorted(mine, theirs, side="left").astype(np.int64)
    high = np.searchsorted(mine, theirs, side="right").astype(np.int64)
    moments = happened["time"].to_numpy()
    last = first_after(times, low, high, moments, side="right") - 1
    first = low
    if events.within is not None:
        oldest = moments - in_time_unit(events.within, unit)
        first = first_after(times, low, high, oldest, side="left")
    fits = (last >= first) & (low < high)
    first, last, values = first[fits], last[fits], happened["value"].to_numpy()[fits]
    if events.touch == "first":
        last = first
    elif events.touch == "last":
        first = last
    credit = np.zeros(log.height)
    credit[order] = _shared(first, last, values, log.height)
    return credit, int(fits.sum())


def _shared(first: Int64Array, last: Int64Array, values: Float64Array, n: int) -> Float64Array:
    """Spread each value in equal shares over the rows first .. last."""
    counts = last - first + 1
    start = np.repeat(np.cumsum(counts) - counts, counts)
    rows = np.repeat(first, counts) + np.arange(int(counts.sum())) - start
    weights = np.repeat(values / counts, counts)
    return np.bincount(rows, weights=weights, minlength=n).astype(np.float64)


def _known_until(
    decisions: pl.Series, moments: pl.Series, events: Events, unit: Literal["us", "step"]
) -> int | float | None:
    """The latest time of a decision whose outcome is known; None: all are known."""
    if events.within is None and events.late is None:
        return None
    ends: list[Any] = [decisions.max(), *([moments.max()] if len(moments) else [])]
    wait = sum(
        in_time_unit(duration, unit) for duration in (events.within, events.late) if duration is not None
    )
    known: int | float = max(ends) - wait
    return known


def known_rows(times: NDArray[Any], until: int | float | None) -> NDArray[np.bool_]:
    """Decisions [n] whose outcomes are known."""
    return np.ones(len(times), dtype=bool) if until is None else times <= until
