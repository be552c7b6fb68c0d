"""The order of decisions: (user, time, order column, row in the source). Deterministic, ties reported.

Only the key columns are sorted. The wide columns are read afterwards, block by block, and each block is
scattered to its place, so that the peak memory is little more than the final arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shpi.data._read.sources import TableSource
from shpi.data._read.times import check_number_times, check_text_times, time_expression
from shpi.data.columns import Columns
from shpi.data.durations import parse_duration
from shpi.errors import ConfigError, DataError
from shpi.protocols import BoolArray, Int64Array


@dataclass(frozen=True, kw_only=True)
class RowOrder:
    """The sorted position of every source row, and where users and sessions start."""

    source_row: Int64Array  # [n] the source's row at each sorted position
    target: Int64Array  # [n] the sorted position of each source row
    user_start: BoolArray  # [n] at sorted positions
    session_start: BoolArray  # [n]
    user_labels: NDArray[Any]  # [number of users]
    times: NDArray[Any]  # [n] at sorted positions
    has_calendar: bool  # times are microseconds
    tie: BoolArray  # [n] same (user, time, order) as the row before
    notes: tuple[str, ...]


def order_rows(table: TableSource, columns: Columns) -> RowOrder:
    """Sort the rows of a table by its key columns."""
    keys, has_calendar, notes = _key_frame(table, columns)
    rows = np.asarray(keys["row"].to_numpy(), dtype=np.int64)
    moved = int((rows[1:] < rows[:-1]).sum())
    if moved and columns.time is not None:
        notes.append(f"the source was not in (user, time) order; it was sorted ({moved:,} descents)")
    user_start = _changes(keys["user"]) if columns.user is not None else np.ones(len(rows), dtype=bool)
    times = keys["time"].to_numpy()
    tied_rows = ~user_start & np.append(False, times[1:] == times[:-1])
    if columns.order is not None:
        tied_rows &= ~_changes(keys["order"])
    tied = int(tied_rows.sum())
    if tied and columns.time is not None:
        by = "their order values are equal too" if columns.order else "no order column is given"
        notes.append(
            f"{tied:,} decisions share the time of the user's previous one and {by}: kept in source order"
        )
    session_start = _session_starts(keys, columns, user_start, times, has_calendar)
    if columns.session is not None:
        runs, distinct = (
            int(session_start.sum()),
            keys.select(pl.struct(_user_session(keys)).n_unique()).item(),
        )
        if runs > distinct:
            notes.append(
                f"{runs - distinct:,} sessions are interrupted by another session of the same user: "
                "each uninterrupted run counts as one session"
            )
    labels = keys["user"].filter(pl.Series(user_start)) if columns.user is not None else keys["row"]
    target = np.empty(len(rows), dtype=np.int64)
    target[rows] = np.arange(len(rows))
    return RowOrder(
        source_row=rows,
        target=target,
        user_start=user_start,
        session_start=session_start,
        user_labels=(
            np.asarray(labels.cast(pl.Int64).to_numpy())
            if labels.dtype.is_integer()
            else np.asarray(labels.cast(pl.String).to_list(), dtype=np.str_)
        ),
        times=np.ascontiguousarray(times),
        has_calendar=has_calendar,
        tie=tied_rows,
        notes=tuple(notes),
    )


def _key_frame(table: TableSource, columns: Columns) -> tuple[pl.DataFrame, bool, list[str]]:
    schema = table.frame.collect_schema()
    notes: list[str] = []
    time, has_calendar = pl.int_range(pl.len(), dtype=pl.Int64), False
    if columns.time is not None:
        time, has_calendar = time_expression(columns.time, schema[columns.time], columns.time_unit)
        check_number_times(table.frame, columns.time, schema[columns.time], columns.time_unit, table.label)
        if schema[columns.time] == pl.String:
            notes += check_text_times(table.frame, columns.time, table.label)
    keys = [pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"), time.alias("time")]
    keys += [pl.col(columns.user).alias("user")] if columns.user is not None else []
    keys += [pl.col(columns.order).alias("order")] if columns.order is not None else []
    keys += [pl.col(columns.session).alias("session")] if columns.session is not None else []
    frame = table.frame.select(keys).collect()
    for role in ("user", "time", "order", "session"):
        name = getattr(columns, role)
        if name is None:
            continue
        absent = frame[role].is_null()
        if frame[role].dtype.is_float():
            absent |= ~frame[role].is_finite()
        if absent.any():
            row = int(absent.arg_true()[0])
            raise DataError(
                expected=f"a {role} in every row",
                found=f"{int(absent.sum())} missing",
                where=f"column '{name}', {table.locate(row)}",
                remedy=f"fill or remove the rows without a {role}",
            )
    by = [role for role in ("user", "time", "order") if role in frame.columns]
    if columns.user is None and columns.time is None:
        return frame, has_calendar, notes
    if columns.user is None:  # every row is its own user; time orders the users
        return frame.sort("time", maintain_order=True), has_calendar, notes
    return frame.sort(by, maintain_order=True), has_calendar, notes


def _user_session(keys: pl.DataFrame) -> list[str]:
    return [name for name in ("user", "session") if name in keys.columns]


def _changes(series: pl.Series) -> BoolArray:
    """Whether each value differs from the one before it (the first one does)."""
    values: BoolArray = series.ne_missing(series.shift(1)).to_numpy().copy()
    values[:1] = True
    return values


def _session_starts(
    keys: pl.DataFrame, columns: Columns, user_start: BoolArray, times: NDArray[Any], has_calendar: bool
) -> BoolArray:
    if columns.session is not None:
        return user_start | _changes(keys["session"])
    if columns.session_gap is None:
        return user_start.copy()
    if not has_calendar:
        try:
            gap: float = float(columns.session_gap)
        except ValueError:
            raise ConfigError(
                expected="a time column with a calendar for a session gap such as '30m'",
                found=f"plain numbers in column '{columns.time}'",
                remedy="say what they count, e.g. time_unit = 'ms', or give the gap as a number",
            ) from None
    else:
        gap = parse_duration(columns.session_gap)
    pause: BoolArray = np.append(True, np.diff(times) > gap)
    return user_start | pause
