"""The hidden state of a batch of RecoGym users: interests, clicks and views.

Both kinds of user have the same three methods: clicks, views of an organic phase, changes with a tick. All
views of all users in a phase are drawn at once: the length of a phase does not depend on the views in it, so
it is known before the first one.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import Protocol

import numpy as np

from shpi.envs.recogym.ltr import LongTermReward, row_dots
from shpi.envs.recogym.world import ClusterWorld, LatentWorld, click_curve
from shpi.envs.streams import Streams
from shpi.protocols import Float32Array, Float64Array, Int64Array

OMEGA, VIEW, DRIFT, TICK_DRIFT = 10, 11, 12, 13  # labels of the random numbers

_BLOCK = 1 << 16  # weights of products computed at a time, so that they stay in the cache
_LEAST = 8  # least number of columns: with a single one, einsum may add in another order than that of k
_SAFE_LOGIT = 600.0  # exp of anything smaller neither overflows nor vanishes


class Users(Protocol):
    """The users as the simulator needs them. ``rows`` are positions in the batch."""

    counts: Float32Array  # [n, P] views so far
    ltr: LongTermReward | None

    def clicks(self, rows: Int64Array, actions: Int64Array, chance: Float64Array) -> Int64Array:
        """Positions in ``rows`` of those who click on their ``actions``; ``chance`` [m] is uniform."""
        ...

    def tick(self, rows: Int64Array, time: int) -> None:
        """Change interests by one tick between decisions."""
        ...

    def browse(self, rows: Int64Array, lengths: Int64Array) -> None:
        """Let each user view ``lengths`` products, and count them."""
        ...


class LatentUsers:
    """Users of version 1: an interest omega that decides views and clicks, and drifts while they browse."""

    def __init__(
        self,
        world: LatentWorld,
        streams: Streams,
        ltr: LongTermReward,
        *,
        sigma_initial: float,
        sigma: float,
        drift_always: bool,
    ) -> None:
        n = len(streams)
        self.world, self.streams, self.sigma, self.drift_always = world, streams, sigma, drift_always
        self.omega: Float64Array = sigma_initial * streams.normal(OMEGA, 0, world.latent)  # [n, K]
        self.counts: Float32Array = np.zeros((n, world.n_products), dtype=np.float32)
        self.ltr: LongTermReward | None = ltr
        self._long_term = ltr
        self._views: Int64Array = np.zeros(n, dtype=np.int64)  # views so far: the counter of VIEW and DRIFT
        self._sampler = ProductSampler(world.gamma, world.mu_organic)
        self._most = float(click_curve(np.inf)) * (1.0 + 1e-12)  # no click probability is higher

    def clicks(self, rows: Int64Array, actions: Int64Array, chance: Float64Array) -> Int64Array:
        """Probabilities are computed only for users whose draw is below the highest possible probability."""
        maybe = np.flatnonzero(chance < self._most)
        shown = actions[maybe]
        affinity = row_dots(self.world.beta[shown], self.omega[rows[maybe]])
        affinity += self.world.mu_bandit[shown]
        clicked = maybe[chance[maybe] < click_curve(affinity)]
        self._long_term.click(rows[clicked], actions[clicked], self.omega[rows[clicked]])
        return clicked

    def tick(self, rows: Int64Array, time: int) -> None:
        """Add N(0, sigma) to each dimension of omega."""
        self.omega[rows] += self.sigma * self.streams.take(rows).normal(TICK_DRIFT, time, self.world.latent)
        self._long_term.refresh(rows, self.omega[rows])

    def browse(self, rows: Int64Array, lengths: Int64Array) -> None:
        """Draw views; omega drifts between them (and after the last one, if it drifts with every tick)."""
        if not len(rows):
            return
        order = np.argsort(-lengths, kind="stable")  # longest phases first
        rows, lengths = rows[order], lengths[order]
        points = lengths + 1 if self.drift_always else lengths
        position, owner, starts = _by_position(points)
        number = self._views[rows][owner] + position
        path = self._path(rows, owner, number, starts)
        last = path[starts[points - 1] + np.arange(len(rows))]
        self.omega[rows] = last
        self._long_term.refresh(rows, last)
        if self.drift_always:
            going_on = np.flatnonzero(position < lengths[owner])
            owner, number, path = owner[going_on], number[going_on], path[going_on]
        viewer = rows[owner]
        chance = self.streams.take(viewer).uniform(VIEW, number)
        count_views(self.counts, viewer, self._sampler.draw(path, chance))
        self._views[rows] += lengths

    def _path(
        self, rows: Int64Array, owner: Int64Array, number: Int64Array, starts: Int64Array
    ) -> Float64Array:
        """The interests [points, K]: one block per position, the interests before plus the drift."""
        path = np.empty((len(owner), self.world.latent))
        path[: len(rows)] = self.omega[rows]
        moved = slice(len(rows), None)
        drift = self.streams.take(rows[owner[moved]]).normal(DRIFT, number[moved], self.world.latent)
        np.multiply(drift, self.sigma, out=path[moved])
        for before, low, high in zip(starts[:-2], starts[1:-1], starts[2:], strict=True):
            path[low:high] += path[before : before + high - low]
        return path


def _by_position(lengths: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Ragged rows in falling order of length, laid out position by position rather than row by row.

    Returns the position [total] and the row [total] of each point, and where each position starts
    [longest + 1]. The rows that reach a position are the first ones, so a block lines up with the next.
    """
    reach = np.cumsum(np.bincount(lengths)[:0:-1])[::-1]  # number of rows that have a position 0, 1, …
    starts = np.concatenate([[0], np.cumsum(reach)])
    position = np.repeat(np.arange(len(reach)), reach)
    return position, np.arange(len(position)) - starts[position], starts


class ClusterUsers:
    """Users of version 0: they stay in the cluster of their first product, and never change."""

    def __init__(self, world: ClusterWorld, streams: Streams) -> None:
        n = len(streams)
        self.streams, self._clicks, self._size = streams, world.click_probs(), world.cluster_size
        self.product: Int64Array = _scaled(streams.uniform(OMEGA, 0), world.n_products)  # [n] seen last
        self.counts: Float32Array = np.zeros((n, world.n_products), dtype=np.float32)
        self.ltr: LongTermReward | None = None
        self._views: Int64Array = np.zeros(n, dtype=np.int64)
        self._most = float(self._clicks.max())

    def clicks(self, rows: Int64Array, actions: Int64Array, chance: Float64Array) -> Int64Array:
        """Probabilities are looked up only for users whose draw is below the highest possible probability."""
        maybe = np.flatnonzero(chance < self._most)
        return maybe[chance[maybe] < self._clicks[actions[maybe], self.product[rows[maybe]]]]

    def tick(self, rows: Int64Array, time: int) -> None:
        """Do nothing: interests do not drift."""

    def browse(self, rows: Int64Array, lengths: Int64Array) -> None:
        """Each view is uniform among the products of the user's cluster."""
        if not len(rows):
            return
        owner = rows.repeat(lengths)
        ends = np.cumsum(lengths)
        number = np.arange(int(ends[-1])) + (self._views[rows] - (ends - lengths)).repeat(lengths)
        inside = _scaled(self.streams.take(owner).uniform(VIEW, number), self._size)
        items = self.product[owner] // self._size * self._size + inside
        count_views(self.counts, owner, items)
        self.product[rows] = items[ends - 1]
        self._views[rows] += lengths


class ProductSampler:
    """Draws from softmax(Gamma omega + mu) by inverse CDF, for many interests at once.

    The CDF is searched in two steps: first over about sqrt(P) groups of products, then inside the group.
    Every sum is taken in a fixed order for each view, so that a draw does not depend on its neighbours.
    """

    def __init__(self, gamma: Float64Array, mu: Float64Array) -> None:
        self._total, latent = gamma.shape
        self._side = ceil(sqrt(self._total))
        self._groups = ceil(self._total / self._side)
        # One more dimension that is always 1 carries mu; products beyond P have weight exp(-inf) = 0.
        self._table = np.zeros((self._groups * self._side, latent + 1))
        self._table[:, latent] = -np.inf
        self._table[: self._total, :latent], self._table[: self._total, latent] = gamma, mu
        self._at_once = max(_BLOCK // len(self._table), _LEAST)
        self._buffer = np.empty(len(self._table) * self._at_once)
        self._largest, self._offset = float(np.abs(gamma).max()), float(np.abs(mu).max())

    def draw(self, omega: Float64Array, chance: Float64Array) -> Int64Array:
        """One product [m] for each interest [m, K] and uniform number [m]."""
        out = np.empty(len(chance), dtype=np.int64)
        for low in range(0, len(chance), self._at_once):
            block = slice(low, low + self._at_once)
            out[block] = self._draw_block(omega[block], chance[block])
        return out

    def weights(self, omega: Float64Array) -> Float64Array:
        """exp(Gamma omega + mu) up to a factor per column, [products and padding, columns >= m].

        The result is a buffer that the next call overwrites.
        """
        rows, latent = omega.shape
        width = max(rows, _LEAST)
        columns = np.ones((latent + 1, width))
        columns[:latent, :rows], columns[:latent, rows:] = omega.T, 0.0
        logits = self._buffer[: len(self._table) * width].reshape(-1, width)
        np.einsum("pk,kb->pb", self._table, columns, out=logits)
        extreme = np.flatnonzero(
            self._largest * np.abs(columns[:latent]).sum(axis=0) + self._offset > _SAFE_LOGIT
        )
        if len(extreme):
            logits[:, extreme] -= logits[:, extreme].max(axis=0)
        np.exp(logits, out=logits)
        return logits

    def _draw_block(self, omega: Float64Array, chance: Float64Array) -> Int64Array:
        weights = self.weights(omega).reshape(self._groups, self._side, -1)
        mass = np.cumsum(weights.sum(axis=1), axis=0)[:, : len(chance)]  # [groups, m]
        target = chance * mass[-1]
        group = np.minimum((mass <= target).sum(axis=0), self._groups - 1)
        column = np.arange(len(chance))
        target -= np.where(group > 0, mass[group - 1, column], 0.0)
        inside = np.cumsum(weights[group, :, column], axis=1)  # [m, side]
        item = np.minimum((inside <= target[:, None]).sum(axis=1), self._side - 1)
        return np.asarray(np.minimum(group * self._side + item, self._total - 1), dtype=np.int64)


def count_views(counts: Float32Array, rows: Int64Array, items: Int64Array) -> None:
    """Add 1 to counts[row, item] for each view; a pair may occur several times."""
    np.add.at(counts.reshape(-1), rows * counts.shape[1] + items, np.float32(1.0))


def _scaled(chance: Float64Array, size: int) -> Int64Array:
    """Whole numbers 0..size-1 from uniform numbers."""
    return np.minimum((chance * size).astype(np.int64), size - 1)
