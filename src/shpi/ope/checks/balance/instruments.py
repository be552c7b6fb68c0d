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
class Cells:
    """Cells of one column: values up to the first cut, between the first and the second cut, …."""

    words: str
    cuts: Float64Array

    def columns(self, values: Float64Array, known: BoolArray | None = None) -> list[Float64Array]:
        """An indicator [n] for each cell."""
        code = np.searchsorted(self.cuts, values, side="left")
        here = np.ones(len(values), dtype=bool) if known is None else known
        return [((code == cell) & here).astype(np.float64) for cell in range(len(self.cuts) + 1)]

    def names(self) -> list[str]:
        """The name of each cell."""
        if len(self.cuts) == 0:
            return [self.words]
        edges = [f"{cut:.3g}" for cut in self.cuts]
        first, last = f"Where {self.words} is at most {edges[0]}", f"Where {self.words} is above {edges[-1]}"
        middle = [
            f"Where {self.words} is above {a}, at most {b}"
            for a, b in zip(edges[:-1], edges[1:], strict=True)
        ]
        return [first, *middle, last]


@dataclass(frozen=True, kw_only=True, eq=False)
class Instruments:
    """The indicator columns of a log, with cuts from a sample of its users."""

    names: tuple[str, ...]  # those of outcomes of earlier decisions come last
    first_outcome: int  # how many come before these
    time: Cells | None
    step: Cells
    contexts: tuple[tuple[int, Cells], ...]
    past: tuple[tuple[str, Cells], ...]

    @classmethod
    def of(cls, chunk: Chunk) -> Instruments:
        """Choose the cuts from the values in a chunk."""
        logs = chunk.logs
        time = None
        if logs.time_unit == "us" and np.ptp(logs.times) > 0:
            cuts = np.unique(np.quantile(logs.times, np.arange(1, TIME_CELLS) / TIME_CELLS))
            time = Cells(words="time", cuts=cuts)
        longest = int(chunk.steps.max())
        step = Cells(words="the step", cuts=np.unique([0.0, longest // 2]) if longest > 0 else np.empty(0))
        contexts: list[tuple[int, Cells]] = []
        for j in range(logs.schema.width):
            values = logs.contexts[:, j].astype(np.float64)
            if len(contexts) < MOST_DIMENSIONS and np.ptp(values) > 0:
                contexts.append((j, Cells(words=f"'{logs.schema.dimensions[j]}'", cuts=_cuts(values))))
        past: list[tuple[str, Cells]] = []
        for name, values in _past(chunk):
            known = chunk.steps > 0
            if known.any() and np.ptp(values[known]) > 0:
                past.append((name, Cells(words=name, cuts=_cuts(values[known]))))
        names = ["Over all decisions"]
        if time is not None:
            names += [
                f"part {cell + 1} of {len(time.cuts) + 1} of the log's time"
                for cell in range(len(time.cuts) + 1)
            ]
        names += step.names() if len(step.cuts) else []
        names += [name for _, cells in contexts for name in cells.names()]
        outcomes = [name for _, cells in past for name in cells.names()]
        return cls(
            names=(*names, *outcomes),
            first_outcome=len(names),
            time=time,
            step=step,
            contexts=tuple(contexts),
            past=tuple(past),
        )

    def columns(self, chunk: Chunk) -> Float64Array:
        """The indicators [n, J], in the order of ``names``."""
        logs = chunk.logs
        columns = [np.ones(len(logs))]
        if self.time is not None:
            columns += self.time.columns(logs.times.astype(np.float64))
        if len(self.step.cuts):
            columns += self.step.columns(chunk.steps.astype(np.float64))
        for j, cells in self.contexts:
            columns += cells.columns(logs.contexts[:, j].astype(np.float64))
        past = dict(_past(chunk))
        for name, cells in self.past:
            columns += cells.columns(past[name], chunk.steps > 0)
        return np.stack(columns, axis=1)


def _cuts(values: Float64Array) -> Float64Array:
    """Cuts between the values if they are few, else at the quartiles."""
    distinct = np.unique(values[:: max(1, len(values) // 100_000)])
    if len(distinct) <= FEW_VALUES:
        between: Float64Array = distinct[:-1] + (distinct[1:] - distinct[:-1]) / 2
        return between
    cuts: Float64Array = np.unique(np.quantile(values, [0.25, 0.5, 0.75]))
    inside: Float64Array = cuts[cuts < distinct[-1]]
    return inside


def _past(chunk: Chunk) -> list[tuple[str, Float64Array]]:
    """Outcomes of earlier decisions as known at this decision, [n] each; 0 at a first decision."""
    logs = chunk.logs
    known_at_once = chunk.rewards if logs.immediate is None else logs.immediate
    rewards = np.where(chunk.observed, known_at_once, 0.0)
    finite = [name for name, values in logs.metrics.items() if np.isfinite(values).all()]
    outcomes = [
        ("the reward", rewards),
        *((f"'{name}'", logs.metrics[name]) for name in finite[:MOST_METRICS]),
    ]
    last, *others = (
        (f"{name} before", np.where(chunk.steps > 0, np.append(0.0, values[:-1]), 0.0))
        for name, values in outcomes
    )
    return [
        last,
        ("the mean reward before", sum_before(chunk, rewards) / np.maximum(chunk.steps, 1)),
        *others,
    ]


def sum_before(chunk: Chunk, values: Float64Array) -> Float64Array:
    """The sum of ``values`` ([n] or [n, G]) over the earlier decisions of the same trajectory."""
    before = np.zeros_like(values)
    np.cumsum(values[:-1], axis=0, out=before[1:])
    first = before[chunk.logs.offsets[:-1]]
    return before - np.repeat(first, np.diff(chunk.logs.offsets), axis=0)
