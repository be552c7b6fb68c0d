"""How contexts change: the protocol `Moves` of a world model, and `Neighbours`, which works for any log.

`Neighbours` copies: the next context of a simulated user follows by the step that a logged user took in a
similar context, under the same action, with a similar reward, of the same kind (staying in the session, or
returning in bin b). Columns that never change in the log stay. Columns with many values take the donor's
*change*, kept inside the range of the log; columns with few values take the donor's *next value*. Whole rows
are copied, so that columns that change together in the log do so here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from shpi.data.logged import LoggedData
from shpi.envs.fitted.donors import Nearby
from shpi.envs.fitted.outcomes import return_kind
from shpi.envs.fitted.tables import LEVELS
from shpi.envs.streams import Streams
from shpi.features.parts import freeze, saveable
from shpi.protocols import BoolArray, Float32Array, Float64Array, Int64Array, IntArray

FEEDBACK, MOVE = 3, 6  # labels of the random streams
DIRECTIONS = 8  # principal directions along which wider contexts are compared
REWARD_WEIGHT = 4.0  # weight of the reward against a context column, both in standard deviations


class Moves(Protocol):
    """What a world model needs to know about feedback and contexts. All methods work row by row."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the further metrics of a decision."""
        ...

    @property
    def moving(self) -> Int64Array:
        """The columns of a context that can change."""
        ...

    def feedback(
        self, x: Float32Array, actions: IntArray, rewards: Float64Array, streams: Streams, step: int
    ) -> tuple[Float64Array, Float64Array]:
        """Rewards [n] (the drawn ones, or with noise added to their means) and metrics [n, m]."""
        ...

    def after(self, x: Float32Array, rewards: Float64Array, metrics: Float64Array) -> Float32Array:
        """The inputs of the models of ends and returns, [n, q]: the context's d columns, then others."""
        ...

    def move(
        self,
        x: Float32Array,
        actions: IntArray,
        rewards: Float64Array,
        after: Float32Array,
        kind: Int64Array,
        streams: Streams,
        step: int,
    ) -> tuple[Float32Array, Float64Array]:
        """The next contexts [n, d] and the time to them [n]; kind 0 stays in the session, b returns in b."""
        ...


@saveable("envs/world-neighbours")
@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbours:
    """Donors from a log. m transitions, d columns."""

    contexts: Float32Array  # [m, d] before
    following: Float32Array  # [m, d] after
    actions: Int64Array  # [m]
    rewards: Float64Array  # [m]
    noise: Float64Array  # [m] the reward minus its fitted mean; 0 for binary rewards
    values: Float64Array  # [m, q] further metrics
    kind: Int64Array  # [m]
    gap: Float64Array  # [m]
    moving: Int64Array
    names: tuple[str, ...] = ()
    n_actions: int = 1
    binary: bool = True
    k: int = 20
    _found: dict[tuple[int, int, int], tuple[Nearby, Int64Array]] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        freeze(self, "contexts", "following", ndim=2, dtype=np.float32)
        freeze(self, "actions", "kind", "moving", ndim=1, dtype=np.int64)
        freeze(self, "rewards", "noise", "gap", ndim=1)
        freeze(self, "values", ndim=2)

    @classmethod
    def fit(
        cls, logs: LoggedData, edges: Float64Array, means: Float64Array, *, binary: bool, k: int
    ) -> Neighbours:
        """Make every transition of the log a donor. ``means`` [n] are the fitted means of the rewards."""
        rows, kind, gap = return_kind(logs, edges)
        rewards = np.zeros(len(logs)) if logs.rewards is None else logs.rewards
        following = logs.contexts[rows + 1] if len(rows) else logs.contexts[:0]
        if not len(rows):  # trajectories of one decision: feedback has donors, moves have none
            rows, kind, gap = np.arange(len(logs)), np.zeros(len(logs), np.int64), np.zeros(len(logs))
            following = logs.contexts
        names = tuple(sorted(logs.metrics))
        values = [logs.metrics[name][rows] for name in names]
        return cls(
            contexts=logs.contexts[rows],
            following=following,
            actions=logs.actions[rows].astype(np.int64),
            rewards=rewards[rows],
            noise=np.zeros(len(rows)) if binary else (rewards - means)[rows],
            values=np.stack(values, axis=1) if values else np.zeros((len(rows), 0)),
            kind=kind,
            gap=gap,
            moving=np.flatnonzero((logs.contexts[rows] != following).any(axis=0)),
            names=names,
            n_actions=logs.n_actions,
            binary=binary,
            k=k,
        )

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the further metrics of a decision."""
        return self.names

    def feedback(
        self, x: Float32Array, actions: IntArray, rewards: Float64Array, streams: Streams, step: int
    ) -> tuple[Float64Array, Float64Array]:
        """Noise and metrics of a donor of any kind; without noise and metrics, no donor is drawn."""
        if self.binary and not self.names:
            return rewards, np.zeros((len(x), 0))
        any_kind = np.full(len(x), -1, dtype=np.int64)
        compare = rewards if self.binary else np.zeros(len(x))
        donors = self._donors(x, actions, compare, any_kind, streams.uniform(FEEDBACK, step))
        return rewards + self.noise[donors], self.values[donors]

    def after(self, x: Float32Array, rewards: Float64Array, metrics: Float64Array) -> Float32Array:
        """The context, the reward and the further metrics."""
        return np.concatenate([x, rewards[:, None], metrics], axis=1, dtype=np.float32)

    def move(
        self,
        x: Float32Array,
        actions: IntArray,
        rewards: Float64Array,
        after: Float32Array,
        kind: Int64Array,
        streams: Streams,
        step: int,
    ) -> tuple[Float32Array, Float64Array]:
        """Apply a donor's step to each user's context."""
        donors = self._donors(x, actions, rewards, kind, streams.uniform(MOVE, step))
        low, high, few = self._ranges
        moved = x.copy()
        for j in self.moving:
            target = self.following[donors, j]
            if not few[j]:
                target = np.clip(x[:, j] + (target - self.contexts[donors, j]), low[j], high[j])
            moved[:, j] = target
        return moved, self.gap[donors]

    # ------------------------------------------------------------------ donors

    @cached_property
    def _ranges(self) -> tuple[Float32Array, Float32Array, BoolArray]:
        """The least and the greatest value of each column, and whether it has few values."""
        both = np.concatenate([self.contexts, self.following])
        few = np.array([len(np.unique(column)) <= LEVELS for column in both.T], dtype=bool)
        return both.min(axis=0), both.max(axis=0), few

    @cached_property
    def _space(self) -> tuple[Float64Array, Float64Array, float]:
        """The space in which donors are compared: centres [d], directions [d, p] and the reward's scale."""
        centre, spread = (
            self.contexts.mean(axis=0, dtype=np.float64),
            self.contexts.std(axis=0, dtype=np.float64),
        )
        used = np.flatnonzero(spread > 1e-12 * (1.0 + np.abs(centre)))
        directions = np.zeros((len(centre), len(used)))
        directions[used, np.arange(len(used))] = 1.0 / spread[used]
        if len(used) > DIRECTIONS:
            scaled = (self.contexts - centre) @ directions
            _, vectors = np.linalg.eigh(scaled.T @ scaled)
            directions = directions @ vectors[:, : -DIRECTIONS - 1 : -1]
        scale = float(self.rewards.std())
        return centre, directions, REWARD_WEIGHT / scale if scale > 0 else 0.0

    def _points(self, x: Float32Array, rewards: Float64Array | None) -> Float64Array:
        """Contexts and rewards as points [n, p]; summed in a fixed order, whatever the batch."""
        centre, directions, weight = self._space
        points = np.zeros((len(x), directions.shape[1] + 1))
        for j in np.flatnonzero(directions.any(axis=1)):
            shift = (x[:, j] - centre[j])[:, None]
            nonzero = directions[j] != 0
            points[:, :-1][:, nonzero] += shift * directions[j, nonzero]
        if rewards is not None:
            points[:, -1] = rewards * weight
        return points

    def _donors(
        self,
        x: Float32Array,
        actions: IntArray,
        rewards: Float64Array,
        kind: Int64Array,
        uniform: Float64Array,
    ) -> Int64Array:
        """One donor per user, of the same kind, reward (if binary) and, if there are enough, action."""
        points = self._points(x, rewards)
        paid = (rewards > 0.5).astype(np.int64) if self.binary else np.zeros(len(x), dtype=np.int64)
        stratum = ((kind + 1) * 2 + paid) * self.n_actions + actions
        donors = np.empty(len(x), dtype=np.int64)
        for value in np.unique(stratum):
            here = np.flatnonzero(stratum == value)
            rest, action = divmod(int(value), self.n_actions)
            near, rows = self._stratum(rest // 2 - 1, rest % 2, action)
            donors[here] = rows[near.draw(points[here], uniform[here])]
        return donors

    def _stratum(self, kind: int, paid: int, action: int) -> tuple[Nearby, Int64Array]:
        """The donors of one kind (-1: any), reward and action; of every action (-1) if these are too few."""
        key = (kind, paid, action)
        if key not in self._found:
            rows = self._rows(kind, paid, action)
            if action >= 0 and len(rows) < self.k:
                self._found[key] = self._stratum(kind, paid, -1)
            else:
                # Real-valued rewards are means here, without a donor's noise yet: compare contexts alone.
                rewards = None if kind < 0 and not self.binary else self.rewards[rows]
                self._found[key] = Nearby(self._points(self.contexts[rows], rewards), self.k), rows
        return self._found[key]

    def _rows(self, kind: int, paid: int, action: int) -> Int64Array:
        """All rows that match; if none does, the reward and then the kind are ignored."""
        fits = np.ones(len(self.kind), dtype=bool) if kind < 0 else self.kind == kind
        alike = fits & (self.rewards > 0.5 if paid else self.rewards <= 0.5) if self.binary else fits
        pool = next((mask for mask in (alike, fits) if mask.any()), np.ones_like(fits))
        return np.flatnonzero(pool if action < 0 else pool & (self.actions == action))
