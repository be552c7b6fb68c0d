"""Sufficient statistics of a linear regression per action: sums, which add up over shards.

    G_a = sum_{i: a_i = a} omega_i phi(x_i) phi(x_i)'        [A, p, p]    `GramStatistics`: once per log
    c_a = sum_{i: a_i = a} omega_i phi(x_i) (y_i - m)        [A, p]       `TargetStatistics`: once per target

The targets' sums are taken about their mean m, and moved to the common mean when two shards are added: sums
about 0 would lose all digits of targets with a small spread around 1e12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy import sparse

from shpi.errors import DataError
from shpi.oracles.base import blocks
from shpi.protocols import Float64Array, Int64Array, IntArray

S = TypeVar("S", "GramStatistics", "TargetStatistics")
Phi = Callable[[slice], Float64Array]  # rows of the feature matrix, [m, p]


@dataclass(frozen=True, kw_only=True, eq=False)
class GramStatistics:
    """The sums that do not depend on the targets."""

    grams: Float64Array  # [A, p, p]
    counts: Int64Array  # [A] rows of positive weight

    def __add__(self, other: GramStatistics) -> GramStatistics:
        _same_shape(self.grams, other.grams)
        return GramStatistics(grams=self.grams + other.grams, counts=self.counts + other.counts)

    def __sub__(self, other: GramStatistics) -> GramStatistics:
        """The statistics without a fold."""
        return GramStatistics(grams=self.grams - other.grams, counts=self.counts - other.counts)


@dataclass(frozen=True, kw_only=True, eq=False)
class TargetStatistics:
    """The sums that change with the targets."""

    cross: Float64Array  # [A, p] c_a about the mean
    sums: Float64Array  # [A, p] sum omega phi
    weight: float  # sum omega
    mean: float
    squares: float  # sum omega (y - mean)^2

    def about(self, mean: float) -> TargetStatistics:
        """The same sums about another point than the mean."""
        shift = self.mean - mean
        return TargetStatistics(
            cross=self.cross + shift * self.sums,
            sums=self.sums,
            weight=self.weight,
            mean=mean,
            squares=self.squares + self.weight * shift**2,
        )

    def __add__(self, other: TargetStatistics) -> TargetStatistics:
        _same_shape(self.cross, other.cross)
        weight = self.weight + other.weight
        mean = self.mean + (other.mean - self.mean) * (other.weight / weight if weight > 0 else 0.0)
        left, right = self.about(mean), other.about(mean)
        return TargetStatistics(
            cross=left.cross + right.cross,
            sums=left.sums + right.sums,
            weight=weight,
            mean=mean,
            squares=left.squares + right.squares,
        )


def gram_statistics(
    phi: Phi, width: int, actions: IntArray, n_actions: int, weights: Float64Array | None = None
) -> GramStatistics:
    """G_a for every action, in one pass over blocks of rows."""
    grams = np.zeros((n_actions, width, width))
    counts = np.zeros(n_actions, dtype=np.int64)
    for rows in blocks(len(actions), width):
        taken, features = actions[rows], phi(rows)
        order = np.argsort(taken, kind="stable")
        if weights is not None:
            order = order[weights[rows][order] > 0]
        starts = np.searchsorted(taken[order], np.arange(n_actions + 1))
        counts += np.diff(starts)
        for action in np.flatnonzero(np.diff(starts)):
            chosen = order[starts[action] : starts[action + 1]]
            own = features[chosen]
            scaled = own if weights is None else own * weights[rows][chosen, None]
            grams[action] += own.T @ scaled
    return GramStatistics(grams=grams, counts=counts)


def target_statistics(
    phi: Phi,
    width: int,
    actions: IntArray,
    n_actions: int,
    targets: Float64Array,
    weights: Float64Array | None = None,
) -> TargetStatistics:
    """c_a for every action, about the mean of the targets."""
    omega = np.ones(len(targets)) if weights is None else weights
    weight = float(omega.sum())
    mean = float(omega @ targets) / weight if weight > 0 else 0.0
    centred = targets - mean
    cross = cross_moments(phi, width, actions, n_actions, omega * centred)
    sums = cross_moments(phi, width, actions, n_actions, omega)
    squares = float(omega @ centred**2)
    return TargetStatistics(cross=cross, sums=sums, weight=weight, mean=mean, squares=squares)


def cross_moments(
    phi: Phi, width: int, actions: IntArray, n_actions: int, values: Float64Array
) -> Float64Array:
    """sum_{i: a_i = a} values_i phi(x_i) [A, p]: a sparse matrix, one entry per row, times the features."""
    total = np.zeros((n_actions, width))
    for rows in blocks(len(values), width):
        m = rows.stop - rows.start
        chosen = sparse.csr_matrix((values[rows], actions[rows], np.arange(m + 1)), shape=(m, n_actions))
        total += chosen.T @ phi(rows)
    return total


def merge(parts: Iterable[S]) -> S:
    """Add the statistics of all shards; their order affects only rounding."""
    statistics = list(parts)
    if not statistics:
        raise DataError(expected="the statistics of at least one shard", found="none")
    total = statistics[0]
    for further in statistics[1:]:
        total = total + further
    return total


def _same_shape(left: Float64Array, right: Float64Array) -> None:
    if left.shape != right.shape:
        raise DataError(
            expected=f"statistics of shape {left.shape}",
            found=f"shape {right.shape}",
            remedy="use one fitted feature map and one action space for all shards",
        )
