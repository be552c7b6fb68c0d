r"""The sums behind LSTD: one pass over a log, in blocks; the sums of shards add up.

    gram = sum phi(x_t) phi(x_t)'     cross = sum phi(x_t) gamma^L phi(x_{t+L})'     target = sum phi(x_t) G_t
    G_t  = sum_{m<L} gamma^m r_{t+m}

with phi = (1, features) and windows of L = ``lookahead`` decisions, fewer where the trajectory ends or a
reward or a next context is unknown. After a termination phi is 0, intercept included, since nothing follows.
Rows whose own next context or reward is unknown are left out. L = 1 is the classic LSTD; see
`shpi.values.lstd` for why more is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features.base import FeatureMap
from shpi.protocols import BoolArray, Float64Array, FloatArray, Int64Array
from shpi.values.transitions import rewards_of, usable_transitions

_ENTRIES = 500_000  # entries of a block of features: 4 MB, which the allocator returns at once


@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """For every decision, the next up to ``lookahead`` decisions whose consequences are all known."""

    usable: BoolArray  # [n] False: the window is empty
    stops: Int64Array  # [n] the row after the window, possibly the row after the trajectory
    ends: Int64Array  # [n] the row after the trajectory
    returns: Float64Array  # [n] G_t
    discounts: Float64Array  # [n] gamma^L

    @classmethod
    def of(cls, logs: LoggedData, *, gamma: float, lookahead: int) -> Windows:
        """Find the windows and add up their rewards."""
        n, rewards, usable = len(logs), rewards_of(logs), usable_transitions(logs)
        rows = np.arange(n)
        ends = np.repeat(logs.offsets[1:], np.diff(logs.offsets))
        limits = ends
        if not usable.all():
            unknown = np.minimum.accumulate(np.where(usable, n, rows)[::-1])[::-1]
            limits = np.minimum(ends, unknown)
        stops = np.minimum(rows + lookahead, limits)
        returns = np.where(usable, rewards, 0.0)
        for m in range(1, int((stops - rows).max(initial=0))):
            longer = np.flatnonzero(stops > rows + m)
            returns[longer] += gamma**m * rewards[longer + m]
        return cls(
            usable=usable, stops=stops, ends=ends, returns=returns, discounts=gamma ** (stops - rows * 1.0)
        )


class Block(NamedTuple):
    """Some consecutive decisions of a log, as features with the intercept first."""

    rows: slice
    phi: FloatArray  # [b, p + 1]
    following: FloatArray  # [b, p + 1] gamma^L phi(x_{t+L}); 0 after a termination
    usable: BoolArray  # [b]


@dataclass(frozen=True, kw_only=True, eq=False)
class LstdSums:
    """Sums over n usable windows, p features and an intercept."""

    n: int
    gram: Float64Array  # [p + 1, p + 1]
    cross: Float64Array  # [p + 1, p + 1], discounted
    target: Float64Array  # [p + 1]
    square: float  # sum G^2

    @classmethod
    def of(cls, logs: LoggedData, features: FeatureMap, *, gamma: float, lookahead: int = 1) -> LstdSums:
        """The sums over one shard, block by block."""
        width, windows = features.width + 1, Windows.of(logs, gamma=gamma, lookahead=lookahead)
        gram, cross = np.zeros((width, width)), np.zeros((width, width))
        target, square, n = np.zeros(width), 0.0, 0
        for block in feature_blocks(logs, features, windows, lookahead):
            phi, returns = block.phi, windows.returns[block.rows]
            if not block.usable.all():
                phi = phi * block.usable[:, None]
                returns = np.where(block.usable, returns, 0.0)
            gram += phi.T @ phi
            cross += phi.T @ block.following
            target += phi.T @ returns
            square += float(returns @ returns)
            n += int(block.usable.sum())
        return cls(n=n, gram=gram, cross=cross, target=target, square=square)

    def __add__(self, other: LstdSums) -> LstdSums:
        if self.gram.shape != other.gram.shape:
            raise ConfigError(
                expected="sums over the same features",
                found=f"{len(self.target)} and {len(other.target)} features",
                remedy="fit the feature map once and use it for all shards",
            )
        return LstdSums(
            n=self.n + other.n,
            gram=self.gram + other.gram,
            cross=self.cross + other.cross,
            target=self.target + other.target,
            square=self.square + other.square,
        )

    def __sub__(self, other: LstdSums) -> LstdSums:
        return LstdSums(
            n=self.n - other.n,
            gram=self.gram - other.gram,
            cross=self.cross - other.cross,
            target=self.target - other.target,
            square=self.square - other.square,
        )

    def system(self, ridge: float) -> Float64Array:
        """The matrix gram - cross + penalty, [p + 1, p + 1]; see `penalty`."""
        return self.gram - self.cross + np.diag(self.penalty(ridge))

    def penalty(self, ridge: float) -> Float64Array:
        """The addition to the diagonal [p + 1]: ``ridge`` times the mean square of a feature; 0 first.

        ``ridge`` counts decisions, so a ridge that suits a part of a log also suits the whole log.
        """
        diagonal = np.diag(self.gram)[1:]
        scale = float(diagonal.sum()) / max(len(diagonal) * self.n, 1)
        added = np.full(len(self.target), ridge * scale if scale > 0 else 1.0)
        added[0] = 0.0
        return added

    def solve(self, ridge: float) -> Float64Array:
        """The coefficients theta [p + 1]; see `shpi.values.lstd`."""
        system = self.system(ridge)
        try:
            return np.linalg.solve(system, self.target).astype(np.float64)
        except np.linalg.LinAlgError:  # exactly singular: contexts that are all the same, without a ridge
            return np.linalg.lstsq(system, self.target, rcond=None)[0].astype(np.float64)


def feature_blocks(
    logs: LoggedData,
    features: FeatureMap,
    windows: Windows,
    lookahead: int,
) -> Iterator[Block]:
    """The features of a log and of the contexts after its windows, in blocks that bound the memory."""
    size = block_rows(features.width)
    trajectory = logs.trajectory_of_row
    for first in range(0, len(logs), size):
        rows = slice(first, min(first + size, len(logs)))
        ahead = min(rows.stop + lookahead, len(logs))
        extended = with_intercept(features, logs.contexts[first:ahead])
        stops, over = windows.stops[rows], windows.stops[rows] == windows.ends[rows]
        following = extended[np.minimum(stops - first, len(extended) - 1)]
        if over.any():
            which = trajectory[rows][over]
            last = slice(which[0], which[-1] + 1)
            finals = with_intercept(features, logs.final_contexts[last])
            finals[logs.terminated[last]] = 0.0
            following[over] = finals[which - which[0]]
        following *= windows.discounts[rows, None]
        yield Block(
            rows=rows, phi=extended[: rows.stop - first], following=following, usable=windows.usable[rows]
        )


def block_rows(width: int) -> int:
    """The number of rows of ``width`` features that are held at once."""
    return max(_ENTRIES // (width + 1), 256)


def with_intercept(
    features: FeatureMap, contexts: FloatArray, precision: type[np.floating[Any]] = np.float64
) -> FloatArray:
    """(1, phi(x)), [n, p + 1]."""
    phi = np.empty((len(contexts), features.width + 1), dtype=precision)
    phi[:, 0], phi[:, 1:] = 1.0, features.transform(contexts)
    return phi
