"""Columns of quantities known before a decision, which correct propensities must balance.

    E[ (1[a_t = a] - mu(a|x_t)) z_t ] = 0        for every z_t that is known before the action is chosen

All columns are indicators, so that an imbalance reads as "chosen 12 % of the time, not 10 %": cells of the
time, of the step, of the contexts, and of the outcomes of earlier decisions. The earlier outcomes are the
negative controls: the action at hand cannot have changed them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi.ope.problem import Chunk
from shpi.protocols import BoolArray, Float64Array

TIME_CELLS = 8  # periods of the log, with equally many decisions each
MOST_DIMENSIONS, MOST_METRICS = 12, 3  # context dimensions, and metrics of earlier decisions, to test at most
FEW_VALUES = 6  # a column with at most so many distinct values gets a cell for each


@dataclass(frozen=True, kw_only=True, eq=False)
class Instruments:
    """The indicator columns of a sample of a log."""

    names: tuple[str, ...]  # those of outcomes of earlier decisions come last
    columns: Float64Array  # [n, J] in the order of the names, zeros and ones
    first_outcome: int  # how many come before the outcomes

    @classmethod
    def of(cls, chunk: Chunk) -> Instruments:
        """Cut every column of a chunk into cells, by the values in it."""
        logs, steps = chunk.logs, chunk.steps
        cells: list[Cell] = [("Over all decisions", np.ones(len(logs)))]
        if logs.time_unit == "us" and np.ptp(logs.times) > 0:
            cuts = np.unique(np.quantile(logs.times, np.arange(1, TIME_CELLS) / TIME_CELLS))
            parts = _cells("time", logs.times.astype(np.float64), cuts)
            cells += [
                (f"part {number} of {len(parts)} of the log's time", column)
                for number, (_, column) in enumerate(parts, start=1)
            ]
        longest = int(steps.max())
        if longest > 0:
            cells += _cells("the step", steps.astype(np.float64), np.unique([0.0, longest // 2]))
        varying = [j for j in range(logs.schema.width) if np.ptp(logs.contexts[:, j]) > 0]
        for j in varying[:MOST_DIMENSIONS]:
            cells += _cells(f"'{logs.schema.dimensions[j]}'", logs.contexts[:, j].astype(np.float64))
        first_outcome, known = len(cells), steps > 0
        # Outcomes of earlier decisions, as known at this decision.
        rewards = np.where(chunk.observed, chunk.rewards if logs.immediate is None else logs.immediate, 0.0)
        finite = [name for name, values in logs.metrics.items() if np.isfinite(values).all()]
        before = {"the reward before": np.append(0.0, rewards[:-1])}
        before["the mean reward before"] = sum_before(chunk, rewards) / np.maximum(steps, 1)
        for name in finite[:MOST_METRICS]:
            before[f"'{name}' before"] = np.append(0.0, logs.metrics[name][:-1])
        for name, values in before.items():
            if known.any() and np.ptp(values[known]) > 0:
                cells += _cells(name, values, known=known)
        names, columns = zip(*cells, strict=True)
        return cls(names=names, columns=np.stack(columns, axis=1), first_outcome=first_outcome)


Cell = tuple[str, Float64Array]  # its name, and an indicator [n]


def _cells(
    words: str, values: Float64Array, cuts: Float64Array | None = None, known: BoolArray | None = None
) -> list[Cell]:
    """The cells of one column: values up to the first cut, between the first and the second cut, ….

    Without ``cuts`` they are between the values if these are few, else at the quartiles.
    """
    here = np.ones(len(values), dtype=bool) if known is None else known
    if cuts is None:
        distinct = np.unique(values[here][:: max(1, int(here.sum()) // 100_000)])
        cuts = distinct[:-1] + (distinct[1:] - distinct[:-1]) / 2
        if len(distinct) > FEW_VALUES:
            cuts = np.unique(np.quantile(values[here], [0.25, 0.5, 0.75]))
            cuts = cuts[cuts < distinct[-1]]
    names, edges = [words], [f"{cut:.3g}" for cut in cuts]
    if edges:
        between = zip(edges[:-1], edges[1:], strict=True)
        names = [
            f"Where {words} is at most {edges[0]}",
            *(f"Where {words} is above {a}, at most {b}" for a, b in between),
            f"Where {words} is above {edges[-1]}",
        ]
    code = np.searchsorted(cuts, values, side="left")
    return [(name, ((code == cell) & here).astype(np.float64)) for cell, name in enumerate(names)]


def sum_before(chunk: Chunk, values: Float64Array) -> Float64Array:
    """The sum of ``values`` ([n] or [n, G]) over the earlier decisions of the same trajectory."""
    before = np.zeros_like(values)
    np.cumsum(values[:-1], axis=0, out=before[1:])
    first = before[chunk.logs.offsets[:-1]]
    return before - np.repeat(first, np.diff(chunk.logs.offsets), axis=0)
