r"""The sums behind LSTD: one pass over a log, in blocks; the sums of two shards are their sum.

    gram = sum phi(x) phi(x)'      cross = sum phi(x) phi(x')'      target = sum phi(x) r

with phi = (1, features). After a termination phi(x') = 0, intercept included, since nothing follows. Rows
whose next context or reward is unknown are left out. No discount enters: the sums serve any gamma.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features.base import FeatureMap
from shpi.protocols import BoolArray, Float64Array, FloatArray
from shpi.values.transitions import goes_on, rewards_of, usable_transitions

_ENTRIES = 4_000_000  # of a block of features: 32 MB


class Block(NamedTuple):
    """Some consecutive decisions of a log, as features with the intercept first."""

    rows: slice
    phi: Float64Array  # [b, p + 1]
    following: Float64Array  # [b, p + 1] of the next context; 0 after a termination
    usable: BoolArray  # [b]


@dataclass(frozen=True, kw_only=True, eq=False)
class LstdSums:
    """Sums over n usable transitions, p features and an intercept."""

    n: int
    gram: Float64Array  # [p + 1, p + 1]
    cross: Float64Array  # [p + 1, p + 1]
    target: Float64Array  # [p + 1]
    square: float  # sum r^2

    @classmethod
    def of(cls, logs: LoggedData, features: FeatureMap) -> LstdSums:
        """The sums over one shard."""
        width, rewards = features.width + 1, rewards_of(logs)
        gram, cross = np.zeros((width, width)), np.zeros((width, width))
        target, square, n = np.zeros(width), 0.0, 0
        for block in feature_blocks(logs, features):
            phi, r = block.phi, rewards[block.rows]
            if not block.usable.all():
                phi = phi * block.usable[:, None]
                r = np.where(block.usable, r, 0.0)
            gram += phi.T @ phi
            cross += phi.T @ block.following
            target += phi.T @ r
            square += float(r @ r)
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

    def system(self, gamma: float, ridge: float) -> Float64Array:
        """The matrix gram - gamma cross + penalty, [p + 1, p + 1]; see `penalty`."""
        return self.gram - gamma * self.cross + np.diag(self.penalty(ridge))

    def penalty(self, ridge: float) -> Float64Array:
        """Added to the diagonal [p + 1]: ``ridge`` decisions' worth of a mean feature; 0 for the intercept.

        Counted in decisions, a ridge that is right for a part of a log is right for the whole of it.
        """
        diagonal = np.diag(self.gram)[1:]
        scale = float(diagonal.sum()) / max(len(diagonal) * self.n, 1)
        added = np.full(len(self.target), ridge * scale if scale > 0 else 1.0)
        added[0] = 0.0
        return added

    def solve(self, gamma: float, ridge: float) -> Float64Array:
        """The coefficients theta [p + 1]; see `shpi.values.lstd`."""
        system = self.system(gamma, ridge)
        try:
            return np.linalg.solve(system, self.target).astype(np.float64)
        except np.linalg.LinAlgError:  # exactly singular: contexts that are all the same, without a ridge
            return np.linalg.lstsq(system, self.target, rcond=None)[0].astype(np.float64)


def feature_blocks(logs: LoggedData, features: FeatureMap) -> Iterator[Block]:
    """The features of a log and of what follows, block by block, so that memory stays bounded."""
    usable, alive = usable_transitions(logs), goes_on(logs)
    size = max(_ENTRIES // (features.width + 1), 256)
    for first in range(0, len(logs), size):
        stop = min(first + size, len(logs))
        extended = with_intercept(features, logs.contexts[first : min(stop + 1, len(logs))])
        phi = extended[: stop - first]
        following = np.empty_like(phi)
        following[: len(extended) - 1] = extended[1:]
        ends = slice(*np.searchsorted(logs.offsets[1:] - 1, (first, stop)))
        if ends.start < ends.stop:
            last = logs.offsets[1:][ends] - 1 - first
            following[last] = with_intercept(features, logs.final_contexts[ends])
        following[~alive[first:stop]] = 0.0
        yield Block(rows=slice(first, stop), phi=phi, following=following, usable=usable[first:stop])


def with_intercept(features: FeatureMap, contexts: FloatArray) -> Float64Array:
    """(1, phi(x)), [n, p + 1]."""
    return np.concatenate([np.ones((len(contexts), 1)), features.transform(contexts)], axis=1)
