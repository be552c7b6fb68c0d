"""Read a table block by block into arrays in sorted order, and record every unusable row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shpi.data._log.checks import LARGEST_REWARD, SUM_TOLERANCE
from shpi.data._read.encoding import Encoding
from shpi.data._read.order import RowOrder
from shpi.data._read.sources import TableSource
from shpi.data.columns import Columns, expand
from shpi.protocols import BoolArray, Float32Array, Float64Array, Int64Array


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Rows that cannot be used, for one reason in one column."""

    reason: str
    column: str
    remedy: str
    droppable: bool  # the column's missing policy is "drop", so this is not an error
    code: int  # value of `Filled.reason` for these rows
    first_row: int = -1  # row number in the source
    example: str = ""


@dataclass(kw_only=True)
class Filled:
    """All columns of a table in (user, time) order, and which rows are unusable."""

    contexts: Float32Array  # [n, d]
    actions: NDArray[np.int32]  # [n]; -1 where the row has none
    rewards: Float64Array | None
    propensities: Float64Array | None
    metrics: dict[str, Float64Array]
    candidates: BoolArray | None
    behaviour: Float64Array | None
    terminated: BoolArray  # [n] False without such a column
    truncated: BoolArray  # [n] likewise
    reason: NDArray[np.int16]  # [n] 0: usable; else the code of the first problem of the row
    lost_context: BoolArray  # [n] whether the context itself is unusable
    problems: dict[tuple[str, str], Problem] = field(default_factory=dict)


def fill(
    table: TableSource,
    columns: Columns,
    encoding: Encoding,
    order: RowOrder,
    advance: Callable[[float], None] | None = None,
) -> Filled:
    """Write every block of the table to its sorted positions."""
    metrics = expand("metrics", columns.metrics, table.columns, set())
    n, actions = len(order.target), len(encoding.action_space)
    has_behaviour = columns.behaviour is not None
    out = Filled(
        contexts=np.empty((n, encoding.schema.width), dtype=np.float32),
        actions=np.empty(n, dtype=np.int32),
        rewards=np.empty(n) if columns.reward is not None else None,
        propensities=np.empty(n) if columns.propensity is not None or has_behaviour else None,
        metrics={name: np.empty(n) for name in metrics},
        candidates=np.zeros((n, actions), dtype=bool) if columns.candidates is not None else None,
        behaviour=np.zeros((n, actions)) if has_behaviour else None,
        terminated=np.zeros(n, dtype=bool),
        truncated=np.zeros(n, dtype=bool),
        reason=np.zeros(n, dtype=np.int16),
        lost_context=np.zeros(n, dtype=bool),
    )
    start = 0
    for block in table.blocks(_expressions(table, columns, encoding, metrics)):
        rows = np.arange(start, start + block.height)
        _place(block, rows, order.target[start : start + block.height], columns, encoding, out)
        start += block.height
        if advance is not None:
            advance(block.height)
    return out


def _expressions(
    table: TableSource, columns: Columns, encoding: Encoding, metrics: list[str]
) -> list[pl.Expr]:
    """Expressions for the columns of a block: encoded contexts, and the others under fixed names."""
    types = table.frame.collect_schema()
    ids = encoding.action_space.ids
    whole = bool(ids) and isinstance(ids[0], int)
    label = pl.col(columns.action).cast(pl.Int64 if whole else pl.String)
    parts = [
        expression.alias(f"x{j}")
        for j, expression in enumerate(
            e for f in encoding.schema.features for e in f.expressions(types[f.name])
        )
    ]
    parts.append(label.alias("action"))
    numbers = {"reward": columns.reward, "propensity": columns.propensity}
    parts += [pl.col(name).cast(pl.Float64).alias(role) for role, name in numbers.items() if name is not None]
    parts += [pl.col(name).cast(pl.Float64).alias(f"metric:{name}") for name in metrics]
    flags = {"terminated": columns.terminated, "truncated": columns.truncated}
    parts += [pl.col(name).cast(pl.Boolean).alias(role) for role, name in flags.items() if name is not None]
    for role in ("candidates", "behaviour"):
        name = getattr(columns, role)
        several = encoding.candidate_columns if role == "candidates" else encoding.behaviour_columns
        if several:
            parts += [
                pl.col(column).cast(pl.Float64).alias(f"{role}:{j}") for j, column in enumerate(several)
            ]
        elif name is not None:
            parts.append(pl.col(name).alias(role))
    return parts


def _place(
    block: pl.DataFrame, rows: Int64Array, at: Int64Array, columns: Columns, encoding: Encoding, out: Filled
) -> None:
    report = _Reporter(out, rows, at)
    _place_contexts(block, at, encoding, out, report)
    codes = _codes(block["action"], encoding.action_space.ids)
    out.actions[at] = codes
    has_action = codes >= 0
    report.rows(codes == -2, "unknown action", columns.action, "use the actions of the given action space")
    for name, target in (("reward", out.rewards), *((f"metric:{m}", v) for m, v in out.metrics.items())):
        if target is not None:
            values = block[name].fill_null(np.nan).to_numpy()
            label = columns.reward if name == "reward" else name.removeprefix("metric:")
            finite, kind = np.isfinite(values), name.partition(":")[0]
            for bad, what in (
                (~finite, "missing or not finite"),
                (finite & (np.abs(values) > LARGEST_REWARD), f"beyond {LARGEST_REWARD:g}"),
            ):
                report.rows(
                    bad & has_action,
                    f"{kind} {what}",
                    str(label),
                    "fill it, or read with invalid='drop'",
                    values,
                )
            target[at] = values
    for flag, holder in (("terminated", out.terminated), ("truncated", out.truncated)):
        if flag in block.columns:
            holder[at] = block[flag].fill_null(False).to_numpy()
    if out.candidates is not None:
        _place_candidates(block, at, codes, columns, encoding, out, report)
    if out.propensities is not None:
        _place_propensities(block, at, codes, columns, encoding, out, report)


@dataclass
class _Reporter:
    out: Filled
    source_rows: Int64Array
    at: Int64Array

    def rows(
        self,
        bad: BoolArray,
        reason: str,
        column: str,
        remedy: str,
        values: NDArray[Any] | None = None,
        droppable: bool = False,
    ) -> None:
        if not bad.any():
            return
        problem = self.out.problems.get((reason, column))
        if problem is None:
            first = int(np.flatnonzero(bad)[0])
            problem = Problem(
                reason=reason,
                column=column,
                remedy=remedy,
                droppable=droppable,
                code=len(self.out.problems) + 1,
                first_row=int(self.source_rows[first]),
                example="" if values is None else str(values[first]),
            )
            self.out.problems[(reason, column)] = problem
        fresh = bad & (self.out.reason[self.at] == 0)  # a row counts only for its first reason
        self.out.reason[self.at[fresh]] = problem.code


def _place_contexts(
    block: pl.DataFrame, at: Int64Array, encoding: Encoding, out: Filled, report: _Reporter
) -> None:
    width = encoding.schema.width
    if width == 0:
        return
    matrix = block.select([f"x{j}" for j in range(width)]).to_numpy(order="c")
    finite = np.isfinite(matrix)
    if not finite.all():
        dimension = 0
        for feature in encoding.schema.features:
            mine = slice(dimension, dimension + len(feature.dimensions))
            dimension = mine.stop
            values = matrix[:, mine]
            missing, infinite = np.isnan(values).any(axis=1), np.isinf(values).any(axis=1)
            report.rows(
                missing,
                "context missing",
                feature.name,
                f"choose a policy: missing = {{'{feature.name}' = 'mean'}} (or zero, indicator, drop)",
                droppable=feature.missing == "drop",
            )
            report.rows(
                infinite, "context infinite", feature.name, "clip it, or read with invalid='drop'", values
            )
        out.lost_context[at[~finite.all(axis=1)]] = True
    out.contexts[at] = matrix


def _codes(labels: pl.Series, ids: tuple[int | str, ...]) -> NDArray[np.int32]:
    """Positions of labels in the sorted ids; -1 for a missing label, -2 for an unknown one."""
    known = labels.is_not_null().to_numpy()
    codes = np.full(len(labels), -1, dtype=np.int32)
    if labels.dtype == pl.Int64:
        table = np.asarray(ids, dtype=np.int64)
        values = labels.fill_null(0).to_numpy()
        place = np.minimum(np.searchsorted(table, values), len(table) - 1)
        codes[known] = np.where(table[place] == values, place, -2)[known]
        return codes
    order = {label: code for code, label in enumerate(ids)}
    mapped = labels.replace_strict(order, default=-2, return_dtype=pl.Int32).to_numpy()
    codes[known] = mapped[known]
    return codes


def _place_candidates(
    block: pl.DataFrame,
    at: Int64Array,
    codes: NDArray[np.int32],
    columns: Columns,
    encoding: Encoding,
    out: Filled,
    report: _Reporter,
) -> None:
    count = len(encoding.action_space)
    mask = np.zeros((block.height, count), dtype=bool)
    if encoding.candidate_columns:
        mask = block.select([f"candidates:{j}" for j in range(count)]).fill_null(0).to_numpy() > 0
    else:
        listed, row_of = _listed_codes(block["candidates"], encoding)
        mask[row_of, listed] = True
    name = str(columns.candidates)
    rows = np.arange(block.height)
    report.rows(
        ~mask.any(axis=1) & (codes >= 0), "empty candidate set", name, "list at least the action taken"
    )
    inside = mask[rows, np.maximum(codes, 0)]
    report.rows(
        (codes >= 0) & ~inside & mask.any(axis=1),
        "action outside its candidates",
        columns.action,
        "log the candidates that the policy really chose from",
    )
    assert out.candidates is not None
    out.candidates[at] = mask


def _listed_codes(lists: pl.Series, encoding: Encoding) -> tuple[NDArray[np.int32], Int64Array]:
    counts = lists.list.len().fill_null(0).to_numpy()
    row_of = np.repeat(np.arange(len(lists)), counts)
    filled = lists.filter(pl.Series(counts > 0))
    whole = isinstance(encoding.action_space.ids[0], int)
    labels = (
        filled.explode().cast(pl.Int64 if whole else pl.String)
        if len(filled)
        else pl.Series([], dtype=pl.Int64)
    )
    codes = _codes(labels, encoding.action_space.ids) if len(labels) else np.zeros(0, dtype=np.int32)
    known = codes >= 0
    return codes[known], row_of[known]


def _place_propensities(
    block: pl.DataFrame,
    at: Int64Array,
    codes: NDArray[np.int32],
    columns: Columns,
    encoding: Encoding,
    out: Filled,
    report: _Reporter,
) -> None:
    has_action = codes >= 0
    rows = np.arange(block.height)
    taken: Float64Array | None = None
    if out.behaviour is not None:
        matrix = _behaviour_matrix(block, columns, encoding)
        off = (matrix < 0).any(axis=1) | ~(np.abs(matrix.sum(axis=1) - 1) <= SUM_TOLERANCE)
        report.rows(
            off & has_action,
            "behaviour distribution negative or not summing to 1",
            str(columns.behaviour),
            "log mu(.|x) over all candidates",
            matrix.sum(axis=1),
        )
        out.behaviour[at] = matrix
        taken = matrix[rows, np.maximum(codes, 0)]
    if columns.propensity is not None:
        values = block["propensity"].fill_null(np.nan).to_numpy()
        if taken is not None:
            report.rows(
                has_action & (np.abs(values - taken) > SUM_TOLERANCE),
                "propensity differs from behaviour distribution",
                columns.propensity,
                "log mu(a|x) of the action taken in both",
                values,
            )
    else:
        values = np.asarray(taken)
    report.rows(
        ~((values > 0) & (values <= 1)) & has_action,
        "propensity not in (0, 1]",
        columns.propensity or str(columns.behaviour),
        "log the probability with which the action was chosen, or leave propensity out of the map",
        values,
    )
    assert out.propensities is not None
    out.propensities[at] = values


def _behaviour_matrix(block: pl.DataFrame, columns: Columns, encoding: Encoding) -> Float64Array:
    """mu(.|x) [m, A]: from one column per action, or from a list parallel to the candidates' list."""
    count = len(encoding.action_space)
    if encoding.behaviour_columns:
        wide: Float64Array = (
            block.select([f"behaviour:{j}" for j in range(count)]).fill_null(np.nan).to_numpy()
        )
        return wide
    matrix = np.zeros((block.height, count))
    lists = block["behaviour"]
    sizes = lists.list.len().fill_null(0).to_numpy().astype(np.int64)  # unsigned differences would overflow
    row_of = np.repeat(np.arange(block.height), sizes)
    values = lists.filter(pl.Series(sizes > 0)).explode().cast(pl.Float64).fill_null(np.nan).to_numpy()
    beside = "candidates" in block.columns and np.array_equal(
        sizes, block["candidates"].list.len().fill_null(0).to_numpy()
    )
    if beside:
        listed, rows = _listed_codes(block["candidates"], encoding)
        np.add.at(matrix, (rows, listed), values)
    else:
        matrix[sizes != count] = np.nan  # neither parallel to a candidates' list nor one entry per action
        full = sizes[row_of] == count
        matrix[row_of[full], (np.arange(len(row_of)) - np.repeat(np.cumsum(sizes) - sizes, sizes))[full]] = (
            values[full]
        )
    return matrix
