"""`Experiment`: a name, the cells to run, and how their rows become tables, figures and claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shpi.experiments._page import topics
from shpi.experiments._run.cells import FAILURE, Cell, Row
from shpi.experiments._run.settings import Settings
from shpi.protocols import Float64Array


@dataclass(frozen=True)
class Table:
    """Cells of text under headings."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Figure:
    """A drawing, and the file that it is written to."""

    file: str
    title: str
    svg: str


@dataclass(frozen=True)
class Note:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Claim:
    """A statement, and whether it holds in our results."""

    text: str
    holds: bool | None  # None: too few trials
    evidence: str
    topic: str = ""  # key of `topics.PAPER` or of `topics.OURS`
    reading: str = ""  # the reading of SHPI that it is about, a key of `settings.READINGS`
    trials: int = 0  # number of pairs of trials
    p: float | None = None  # p-value of the sign-flip test, if there is one

    @property
    def verdict(self) -> str:
        """The verdict in words: the paper's claims are "reproduced", our own "hold"."""
        if self.holds is None:
            return "open: too few trials"
        if self.topic in topics.PAPER:
            return "reproduced" if self.holds else "not reproduced"
        return "holds" if self.holds else "does not hold"


Block = Table | Figure | Note | Claim


@dataclass(frozen=True)
class Results:
    """The rows of an experiment."""

    rows: tuple[Row, ...]

    def trials(self, metric: str = "score", **where: Any) -> dict[int, float]:
        """Value by seed, of the rows with the given fields, e.g. ``method="CB", epsilon=0.3``."""
        by_seed: dict[int, float] = {}
        for row in self.rows:
            if row.metric == metric and all(getattr(row, key) == value for key, value in where.items()):
                assert row.value is not None
                by_seed[row.seed] = row.value
        return dict(sorted(by_seed.items()))

    def values(self, metric: str = "score", **where: Any) -> Float64Array:
        """The values alone, in the order of the seeds."""
        return np.array(list(self.trials(metric, **where).values()))

    def aligned(self, names: Sequence[str], metric: str = "score", **where: Any) -> dict[str, Float64Array]:
        """Values of several methods at the seeds that all of them have; methods without rows are left out."""
        trials = {name: self.trials(metric, method=name, **where) for name in names}
        trials = {name: by_seed for name, by_seed in trials.items() if by_seed}
        shared = sorted(set.intersection(*(set(by_seed) for by_seed in trials.values()))) if trials else []
        return {name: np.array([by_seed[s] for s in shared]) for name, by_seed in trials.items()}

    def pairs(
        self, a: Mapping[str, Any], b: Mapping[str, Any], metric: str = "score"
    ) -> tuple[Float64Array, Float64Array]:
        """Values of two selections of rows at the seeds that both have."""
        first, second = self.trials(metric, **a), self.trials(metric, **b)
        shared = sorted(set(first) & set(second))
        return np.array([first[s] for s in shared]), np.array([second[s] for s in shared])

    def failures(self) -> list[Row]:
        """The rows of failed cells."""
        return [row for row in self.rows if row.metric == FAILURE]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table or figure.

    Args:
        name: name on the command line.
        title: title on the page.
        source: the table or figure of the paper, or "beyond the paper".
        about: description for readers of the page.
        cells: returns the cells to run.
        show: turns rows into tables, figures and claims.
        needs_data: whether it needs KuaiRand's files.
    """

    name: str
    title: str
    source: str
    about: str
    cells: Callable[[Settings], list[Cell]]
    show: Callable[[Results], list[Block]]
    needs_data: bool = False
    also: tuple[str, ...] = field(default=())  # further notes for the page
