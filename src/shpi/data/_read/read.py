"""Read a table of decisions into `LoggedData`: sort the keys, fill the columns, lay out the trajectories.

This module decides what is an error and what is a reported drop (docs/bad-input.md has the table): unusable
values raise one error that lists them all, unless ``invalid="drop"``; repeated decisions are dropped and
reported, unless ``duplicates`` says otherwise. Rows in = rows used + rows dropped, always.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from shpi._core.memory import require_memory
from shpi._core.progress import progress_bar
from shpi.data._log.ledger import Drop, Ledger
from shpi.data._log.slicing import cut
from shpi.data._read.assemble import Duplicates, Layout, lay_out, repeated_rows
from shpi.data._read.encoding import Encoding, learn_encoding, note_filled
from shpi.data._read.fill import Filled, Problem, fill
from shpi.data._read.order import RowOrder, order_rows
from shpi.data._read.sources import TableSource, open_table
from shpi.data.actions import ActionSpace
from shpi.data.canonical import is_canonical, read_canonical
from shpi.data.columns import Columns, expand
from shpi.data.durations import Duration
from shpi.data.logged import LoggedData
from shpi.data.question import Metric, count, leave_after
from shpi.data.question.count import Observed
from shpi.data.schema import ContextSchema
from shpi.data.tables.join import join_events, known_rows
from shpi.errors import ConfigError, DataError, NoColumnMapError
from shpi.files.engines import engine_errors
from shpi.files.remote import is_remote, local, place_of
from shpi.protocols import BoolArray

ROW_BYTES, READ_FACTOR = 50, 2.5  # bytes per row besides contexts; measured peak memory / array bytes
Invalid = Literal["error", "drop"]


def read_log(
    source: Any,
    columns: Columns | Mapping[str, Any] | str | Path | None = None,
    *,
    session_gap: str | None = None,
    invalid: Invalid = "error",
    duplicates: Duplicates = "drop",
    action_features: Any = None,
    schema: ContextSchema | None = None,
    action_space: ActionSpace | None = None,
    metric: Metric | str | None = None,
    churn_after: Duration | None = None,
    progress: bool | None = None,
) -> LoggedData:
    """Read a log.

    Args:
        source: A Parquet file, glob or (hive) folder, CSV or JSON lines (.gz), dsjson, the same at a URI such
            as s3://bucket/folder, or a polars, pandas or pyarrow table.
            A file written by `LoggedData.to_parquet` needs no ``columns``.
        columns: The column map, the same as a dict, or the path of a TOML file with it.
        session_gap: Overrides the map: a pause longer than this, e.g. ``"30m"``, starts a new session.
        invalid: ``"error"``: stop at unusable values. ``"drop"``: leave their rows out and report them.
        duplicates: What happens to a decision that repeats an earlier one.
        action_features: A table with one row per action, for learners that generalise over actions.
        schema: Encode contexts as another log did (e.g. the training log), unseen categories included.
        action_space: Use the actions of another log; rows with unknown actions are invalid.
        metric: Overrides the map: the value of a user, e.g. ``"purchases in 30d"``; see `shpi.Metric`.
        churn_after: Overrides the map: a user who is silent for longer before the log ends has left.
        progress: Show a progress bar; by default when a large table is read in a terminal.
    """
    for value, allowed in ((invalid, get_args(Invalid)), (duplicates, get_args(Duplicates))):
        if value not in allowed:
            raise ConfigError(
                expected=f"one of {', '.join(allowed)}", found=repr(value), remedy="choose one of these"
            )
    with engine_errors(str(source) if isinstance(source, str | Path) else "the table"):
        if columns is None:
            if isinstance(source, str | Path) and is_canonical(source):
                return apply_metric(read_canonical(Path(source)), metric, churn_after)
            if is_remote(source) and str(source).endswith(".parquet") and "*" not in source:
                with local(place_of(source)) as file:
                    if is_canonical(file):
                        return apply_metric(read_canonical(file), metric, churn_after)
            raise _no_map(source)
        chosen = _column_map(columns)
        if session_gap is not None:
            chosen = replace(chosen, session_gap=session_gap, session=None)
        table, chosen = join_events(open_table(source), chosen)
        chosen = with_counted_column(chosen, metric, table.columns)
        encoding = learn_encoding(
            table, chosen, schema=schema, action_space=action_space, action_features=action_features
        )
        logs = read_table(table, chosen, encoding, invalid=invalid, duplicates=duplicates, progress=progress)
        logs = known_part(note_filled(logs, table.frame), table)
        return apply_metric(
            logs, metric or chosen.metric, churn_after or chosen.churn_after, table.known_until
        )


def with_counted_column(columns: Columns, metric: Metric | str | None, available: Sequence[str]) -> Columns:
    """The map, with the column that the metric sums added to its metrics."""
    wanted = metric or columns.metric
    what = None if wanted is None else Metric.of(wanted).what
    if what is None or what not in available or what in expand("metrics", columns.metrics, available, set()):
        return columns
    return replace(columns, metrics=(*columns.metrics, what))


def known_part(logs: LoggedData, table: TableSource) -> LoggedData:
    """The decisions whose outcomes in other tables are already known."""
    if table.known_until is None:
        return logs
    kept = known_rows(logs.times, table.known_until)
    if kept.all():
        return logs
    reason = "too young: events of other tables that belong to it may come after the end"
    return cut(logs, kept, reason, asked=True)


def apply_metric(
    logs: LoggedData,
    metric: Metric | str | Mapping[str, Any] | None,
    churn_after: Duration | None,
    log_end: int | float | None = None,
    observed: Observed | None = None,
) -> LoggedData:
    """Apply ``churn_after`` and the metric to a log: how users end, and what is counted.

    A metric with a window needs no ``churn_after``, since it never looks beyond the window. ``log_end`` and
    ``observed`` describe the whole log; a part of a log cannot derive them from its rows.
    """
    chosen = None if metric is None else Metric.of(metric)
    if churn_after is not None and (chosen is None or chosen.window is None):
        logs = leave_after(logs, churn_after, log_end=log_end)
    return logs if chosen is None else count(logs, chosen, log_end=log_end, observed=observed)


def _column_map(columns: Columns | Mapping[str, Any] | str | Path) -> Columns:
    if isinstance(columns, Columns):
        return columns
    if isinstance(columns, Mapping):
        return Columns.from_mapping(columns, where="the column map")
    if isinstance(columns, str | Path):
        return Columns.from_toml(columns)
    raise ConfigError(
        expected="a column map: shpi.Columns(...), a dict, or the path of a TOML file",
        found=type(columns).__name__,
    )


def read_table(
    table: TableSource,
    columns: Columns,
    encoding: Encoding,
    *,
    invalid: Invalid,
    duplicates: Duplicates,
    progress: bool | None = False,
) -> LoggedData:
    """Read an opened table with a known encoding."""
    # A failed allocation inside polars ends the process. Counting the lines of a text file means reading it.
    if all(file.suffix == ".parquet" for file in table.files):
        rows = int(table.frame.select(pl.len()).collect().item())
        require_memory(
            int(READ_FACTOR * rows * (4 * encoding.schema.width + ROW_BYTES)),
            f"{rows:,} rows with {encoding.schema.width:,} context dimensions",
            "read fewer rows or columns, or prepare the log into shards (shpi.data.prepare_shards)",
        )
    order = order_rows(table, columns)
    small = len(order.target) < 2_000_000  # read in a moment, so a progress bar would only flicker
    with progress_bar("reading the log", len(order.target), False if small else progress) as advance:
        filled = fill(table, columns, encoding, order, advance)
    duplicate = repeated_rows(table, columns, order, filled.actions, duplicates)
    layout = lay_out(order, filled, duplicate)
    ledger = _ledger(table, columns, order, filled, duplicate, layout, invalid)
    # Context dimensions that differ between repeated rows of one decision were updated later.
    again = np.flatnonzero(duplicate[1:]) + 1  # a repeat follows the row that it repeats
    differs = (filled.contexts[again] != filled.contexts[again - 1]).any(axis=0)
    changing = tuple(np.array(encoding.schema.dimensions, dtype=object)[differs])
    return _build(columns, encoding, order, filled, layout, replace(ledger, changing=changing))


def _ledger(
    table: TableSource,
    columns: Columns,
    order: RowOrder,
    filled: Filled,
    duplicate: BoolArray,
    layout: Layout,
    invalid: Invalid,
) -> Ledger:
    drops: list[Drop] = []
    errors: list[tuple[Problem, int]] = []
    counts = np.bincount(filled.reason[~duplicate], minlength=len(filled.problems) + 1)
    problems = list(filled.problems.values())
    if len(layout.stray_rows):
        stray = Problem(
            reason="action missing",
            column=columns.action,
            remedy="log the action, or remove the row",
            droppable=False,
            code=len(problems) + 1,
            first_row=int(order.source_row[layout.stray_rows].min()),
        )
        problems.append(stray)
        counts = np.append(counts, len(layout.stray_rows))
    for problem in problems:
        rows = int(counts[problem.code])
        if rows and not problem.droppable and invalid == "error":
            errors.append((problem, rows))
        elif rows:
            drops.append(
                Drop(
                    reason=problem.reason,
                    rows=rows,
                    column=problem.column,
                    example=problem.first_row,
                    remedy=problem.remedy,
                )
            )
    if errors:
        raise _invalid(table, errors)
    for rows_at, reason, remedy in (
        (
            np.flatnonzero(duplicate),
            "repeats an earlier decision",
            "name an order or identity column if it is real",
        ),
        (layout.lonely_rows, "last context of a user without decisions", "nothing to do"),
    ):
        if len(rows_at):
            first = int(order.source_row[rows_at].min())
            drops.append(Drop(reason=reason, rows=len(rows_at), example=first, remedy=remedy))
    if len(layout.decisions) == 0:
        raise DataError(
            expected="at least one usable decision",
            found="none",
            where=table.label,
            remedy="; ".join(f"{drop.rows} rows: {drop.reason}" for drop in drops),
        )
    return Ledger(
        rows_in=len(order.target) + sum(drop.rows for drop in table.drops),
        rows_used=len(layout.decisions),
        drops=(*table.drops, *drops),
        final_rows=layout.final_rows,
        notes=(*table.notes, *order.notes),
    )


def _invalid(table: TableSource, errors: list[tuple[Problem, int]]) -> DataError:
    """One error for all problems: the first in full, the others in brief."""
    (first, rows), *others = errors
    more = "".join(
        f"; also {n:,} rows: {p.reason} (column '{p.column}', first row {p.first_row})" for p, n in others
    )
    value = f", e.g. {first.example}" if first.example else ""
    return DataError(
        expected="usable values in every row",
        found=f"{rows:,} rows: {first.reason}{value}{more}",
        where=f"column '{first.column}', {table.locate(first.first_row)}",
        remedy=f"{first.remedy}. With invalid='drop' such rows are left out and reported",
    )


def _build(
    columns: Columns, encoding: Encoding, order: RowOrder, filled: Filled, layout: Layout, ledger: Ledger
) -> LoggedData:
    by_row: dict[str, Any] = {
        "contexts": filled.contexts,
        "actions": filled.actions,
        "rewards": filled.rewards,
        "times": order.times,
        "propensities": filled.propensities,
        "behaviour": filled.behaviour,
        "candidates": filled.candidates,
    }
    metrics, masks, rows = filled.metrics, filled.candidates, layout.decisions
    if len(rows) < len(order.target):  # else the arrays are taken as they are
        by_row = {name: None if values is None else values[rows] for name, values in by_row.items()}
        metrics = {name: values[rows] for name, values in metrics.items()}
    told = bool(columns.terminated or columns.truncated) or bool(layout.final_observed.all())
    return LoggedData(
        **by_row,
        offsets=layout.offsets,
        session_offsets=layout.session_offsets,
        users=order.user_labels[layout.user_of_trajectory],
        time_unit="us" if order.has_calendar else "step",
        terminated=layout.terminated,
        final_contexts=filled.contexts[layout.final_from],
        final_observed=layout.final_observed,
        schema=encoding.schema,
        action_space=encoding.action_space,
        ledger=ledger,
        propensity_mode="absent" if filled.propensities is None else "logged",
        final_candidates=None if masks is None else _final_masks(masks[layout.final_from]),
        metrics=metrics,
        endings="marked" if told else "unknown",
    )


def _final_masks(masks: BoolArray) -> BoolArray:
    """Allow every action where the last candidate set is unknown: it only serves bootstrapping."""
    empty: BoolArray = ~np.any(masks, axis=1, keepdims=True)
    return masks | empty


def _no_map(source: Any) -> NoColumnMapError:
    try:
        table = open_table(source)
    except DataError as error:
        raise error from None
    from shpi.data._read.guess import guess_columns

    return NoColumnMapError(
        expected="a column map, since this is not a file written by shpi",
        found="none",
        where=table.label,
        advice="start from this guess, saved as map.toml:",
        guess=guess_columns(table.columns, table.frame.collect_schema()),
    )
