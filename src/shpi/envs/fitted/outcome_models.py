"""The fitted models of a world, side by side: reward, session end, and the hazards of return."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from shpi.envs.fitted.tables import Bins, Codes, Tables, Term, sigmoid
from shpi.features.parts import freeze, saveable
from shpi.protocols import Float32Array, Float64Array, Int64Array, IntArray

Fixed = tuple[Float64Array | None, ...]  # eta of the constant columns, for reward, end, first and later


class _Plan(NamedTuple):
    known: list[Term]  # depend on constant columns only
    live: list[Term]  # the others
    every: list[Term]


@saveable("envs/world-models")
@dataclass(frozen=True, kw_only=True, eq=False)
class Models:
    """A world's models. d context columns; after a decision q >= d columns, the first d those of the context.

    The hazard of the first return bin has its own tables, since it determines daily retention; the later
    bins share one set of tables, with the bin as one more column.
    """

    bins: Bins  # bins of contexts
    after_bins: Bins  # bins of contexts and feedback
    moving: Int64Array  # context columns that change
    feedback: Int64Array  # columns after a decision that the feedback of users moves
    reward: Tables
    reward_state: Tables  # for comparison: the reward without the action
    reward_logged: Tables | None = None  # likewise: with the logged action, if ``reward`` does not use it
    end: Tables | None = None  # None: the log shows no end of a session
    first: Tables | None = None  # None: nothing is known about returns
    later: Tables | None = None  # None: there is only one bin
    first_state: Tables | None = None  # the first bin from the context at the start of the session
    last_bin: int = 1  # B
    levels: Float64Array  # mean of each column after a decision in each bin, concatenated
    centres: Float64Array  # [q] mean of each column after a decision

    def __post_init__(self) -> None:
        freeze(self, "moving", "feedback", ndim=1, dtype=np.int64)
        freeze(self, "levels", "centres", ndim=1)

    @property
    def members(self) -> int:
        """The size of the ensemble."""
        return self.reward.members

    def linked(self, link: float) -> Models:
        """The models with every effect of feedback on ends and returns multiplied by ``link``."""
        if link == 1.0:
            return self
        end, first, later = (
            None if tables is None else tables.scaled(self.feedback, link)
            for tables in (self.end, self.first, self.later)
        )
        return replace(self, end=end, first=first, later=later)

    def assuming(self, column: int, slope: float) -> Models:
        """The models with slope (column - its mean) added to the log-odds of every hazard of return."""
        if slope == 0.0 or self.first is None:
            return self
        start = int(self.after_bins.sizes[:column].sum())
        amounts = slope * (self.levels[start : start + self.after_bins.sizes[column]] - self.centres[column])
        later = None if self.later is None else self.later.raised(column, amounts)
        return replace(self, first=self.first.raised(column, amounts), later=later)

    # ------------------------------------------------------------------ codes

    def fixed_parts(self, x: Float32Array, members: IntArray | int) -> Fixed:
        """The part of eta from constant columns, computed once per user and model."""
        codes = self.bins.code(x)
        after = np.zeros((len(x), self.after_bins.width), dtype=np.float32)
        after[:, : x.shape[1]] = x
        after_codes = self.after_bins.code(after)
        parts: list[Float64Array | None] = []
        for which, tables in enumerate(self._tables):
            own = after_codes if which else codes
            parts.append(None if tables is None else tables.eta(own, None, members, self._plan[which].known))
        return tuple(parts)

    @property
    def _tables(self) -> tuple[Tables, Tables | None, Tables | None, Tables | None]:
        return self.reward, self.end, self.first, self.later

    @cached_property
    def _still(self) -> set[int]:
        """Context columns that never change."""
        return set(range(self.bins.width)) - set(self.moving.tolist())

    @cached_property
    def _plan(self) -> tuple[_Plan, ...]:
        """The terms of each set of tables that are known at the start, except the bin of `later`."""
        plans = []
        for tables in self._tables:
            terms = [] if tables is None else [t for t in tables.terms if t.column < self.after_bins.width]
            known = [term for term in terms if term.column in self._still and not term.by_action]
            plans.append(_Plan(known, [term for term in terms if term not in known], terms))
        return tuple(plans)

    @cached_property
    def _live(self) -> tuple[Int64Array, Int64Array]:
        """The columns whose bins are needed at every decision, before and after it."""
        crossed = {int(j) for tables in self._tables if tables is not None for j in tables.crossed}
        live = [
            [j for j in range(bins.width) if j not in self._still or j in crossed]
            for bins in (self.bins, self.after_bins)
        ]
        return np.array(live[0], dtype=np.int64), np.array(live[1], dtype=np.int64)

    def after_codes(self, after: Float32Array, *, live: bool = False) -> Codes:
        """The bins after a decision [n, q]; ``live``: only those that `fixed_parts` does not cover."""
        return self.after_bins.code(after, self._live[1] if live else None)

    # ------------------------------------------------------------------ outcomes

    def reward_mean(
        self, x: Float32Array, actions: IntArray, members: IntArray | int = 0, fixed: Fixed | None = None
    ) -> Float64Array:
        """E[r | x, a], [n]."""
        codes = self.bins.code(x, None if fixed is None else self._live[0])
        return self.reward.mean(self._eta(0, codes, actions, members, fixed))

    def end_chance(
        self, codes: Codes, actions: IntArray, members: IntArray | int = 0, fixed: Fixed | None = None
    ) -> Float64Array:
        """P(the session ends), [n]."""
        if self.end is None:
            return np.zeros(len(codes))
        return sigmoid(self._eta(1, codes, actions, members, fixed))

    def hazards(
        self, codes: Codes, actions: IntArray, members: IntArray | int = 0, fixed: Fixed | None = None
    ) -> Float64Array:
        """h_b for b = 1 .. B, [n, B]; [n, 0] if nothing is known about returns."""
        if self.first is None:
            return np.zeros((len(codes), 0))
        columns = [sigmoid(self._eta(2, codes, actions, members, fixed))]
        if self.later is not None:
            base = self._eta(3, codes, actions, members, fixed)
            of_bin = [term for term in self.later.terms if term.column == self.after_bins.width]
            flat, row = self.later.numbers.reshape(-1), np.asarray(members) * self.later.numbers.shape[1]
            for b in range(self.last_bin - 1):
                eta = base + flat[row + of_bin[0].start + b] if of_bin else base  # one later bin: no table
                columns.append(sigmoid(eta))
        return np.stack(columns, axis=1)

    def _eta(
        self, which: int, codes: Codes, actions: IntArray, members: IntArray | int, fixed: Fixed | None
    ) -> Float64Array:
        tables = self._tables[which]
        assert tables is not None
        if fixed is None:
            return tables.eta(codes, actions, members, self._plan[which].every)
        return tables.eta(codes, actions, members, self._plan[which].live, fixed[which])
