"""Donors: rows of a log whose outcomes are copied to simulated users in a similar situation.

Copying a whole row preserves the dependence between its columns. `Cells` finds donors by a key, `Nearby` by
distance. A donor is drawn with one uniform number of the user's own stream, so that the split into batches
does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from shpi.errors import DataError
from shpi.features.parts import freeze, saveable
from shpi.protocols import Float64Array, Int64Array, IntArray


@saveable("envs/world-cells")
@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """For each key 0 .. K-1, a list of rows: order[start[key]] .. order[start[key] + count[key] - 1]."""

    order: Int64Array
    start: Int64Array  # [K]
    count: Int64Array  # [K] at least 1

    def __post_init__(self) -> None:
        freeze(self, "order", "start", "count", ndim=1, dtype=np.int64)

    @classmethod
    def fit(cls, levels: Sequence[tuple[IntArray, IntArray]], least: int) -> Cells:
        """Group rows by key; a key with fewer than ``least`` rows gets those of a coarser key.

        Args:
            levels: keys from fine to coarse, (the key of each row [n], the key of each finest key [K]).
            least: number of rows that a key of a level needs, unless that level is the last.
        """
        keys = len(levels[0][1])
        start, count = np.zeros(keys, dtype=np.int64), np.zeros(keys, dtype=np.int64)
        orders, used = [], 0
        for level, (of_row, of_key) in enumerate(levels):
            last = level == len(levels) - 1
            sizes = np.bincount(of_row, minlength=int(np.max(of_key)) + 1)
            first = np.cumsum(sizes) - sizes
            take = (count == 0) & (sizes[of_key] >= (1 if last else least))
            start[take], count[take] = used + first[of_key[take]], sizes[of_key[take]]
            orders.append(np.argsort(of_row, kind="stable"))
            used += len(of_row)
        if not count.all():
            raise DataError(expected="rows to draw from for every key", found="none for some")
        return cls(order=np.concatenate(orders), start=start, count=count)

    def draw(self, keys: IntArray, uniform: Float64Array) -> Int64Array:
        """One row per key, [n]."""
        chosen: Int64Array = self.order[self.start[keys] + (uniform * self.count[keys]).astype(np.int64)]
        return chosen


@dataclass(frozen=True, eq=False)
class Nearby:
    """Rows by distance: one is drawn among the nearest, at least ``k`` of them.

    Rows at the same point form a cell and are taken together, so that a log with few distinct contexts is
    resampled exactly: all rows of the nearest cell if it has k, else as many cells as it takes.
    """

    points: Float64Array  # [m, p]
    k: int

    @cached_property
    def _cells(self) -> tuple[Any, Int64Array, Int64Array, Int64Array]:
        """A tree over the distinct points; the rows of each, one after the other."""
        distinct, of_row = np.unique(self.points, axis=0, return_inverse=True)
        of_row = of_row.reshape(-1)
        count = np.bincount(of_row, minlength=len(distinct)).astype(np.int64)
        return cKDTree(distinct), np.argsort(of_row, kind="stable"), np.cumsum(count) - count, count

    def draw(self, points: Float64Array, uniform: Float64Array) -> Int64Array:
        """One row [n] near each of the points [n, p]."""
        tree, order, start, count = self._cells
        near = tree.query(points, k=list(range(1, min(self.k, tree.n) + 1)))[1]  # [n, k] nearest first
        total = np.cumsum(count[near], axis=1)  # [n, k]
        enough = np.minimum((total < self.k).sum(axis=1), near.shape[1] - 1)
        rows = np.arange(len(points))
        place = (uniform * total[rows, enough]).astype(np.int64)
        which = (total <= place[:, None]).sum(axis=1)
        before = np.where(which > 0, total[rows, np.maximum(which - 1, 0)], 0)
        cell = near[rows, which]
        chosen: Int64Array = order[start[cell] + place - before]
        return chosen
