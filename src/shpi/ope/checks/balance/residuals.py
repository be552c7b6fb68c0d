"""Residuals e: chosen actions minus their propensities, by groups g of actions.

If mu(.|x) is known, e = 1[a_t in g] - mu(g|x_t), with mean 0. If only mu(a_t|x_t) was logged,
e = 1[a_t in g] / mu(a_t|x_t) - |g|, whose mean is 0 if mu supports every action of g, and negative otherwise:
then only a positive excess shows that the propensities are wrong.

A log contains only actions that were chosen at least once, so on average these were chosen more often than
their propensities say. Without mu(.|x), an action therefore counts only after its first row, in both terms
of e.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi.data.audit.propensity import first_rows
from shpi.ope.problem import Chunk, Problem
from shpi.protocols import Float64Array, Int64Array

SINGLE_ACTIONS = 12  # at most so many actions are tested one by one; the others in blocks
BLOCKS = 4  # number of blocks of the actions that are not tested one by one
LEAST_COUNT = 50  # decisions that chose an action, at least, for it to be tested by itself


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """Groups of actions to test, and how many candidates there were, for the Bonferroni correction."""

    of_action: Int64Array  # [A] the group of each action; -1: in none
    names: tuple[str, ...]
    candidates: int
    exact: bool  # mu(.|x) is known

    @classmethod
    def of(cls, problem: Problem) -> Groups:
        """Make a group of each frequent action, and blocks of neighbouring actions of the others."""
        logs, counts = problem.head, problem.times_taken
        exact, size, ids = logs.behaviour is not None, logs.n_actions, logs.action_space.ids
        groups = np.full(size, -1, dtype=np.int64)
        if size == 2 and exact:  # the other action's residuals are the same with a minus sign
            groups[1] = 0
            return cls(of_action=groups, names=(f"action {ids[1]!r}",), candidates=1, exact=exact)
        top = np.argsort(-counts, kind="stable")[:SINGLE_ACTIONS]
        single = top[counts[top] >= LEAST_COUNT]
        groups[single] = np.arange(len(single))
        names = [f"action {ids[a]!r}" for a in single]
        rest = np.flatnonzero(groups < 0)
        for block in np.array_split(rest, min(BLOCKS, len(rest))) if len(rest) else []:
            groups[block] = len(names)
            last = f" to {ids[block[-1]]!r}" if len(block) > 1 else ""
            names.append(f"action {ids[block[0]]!r}{last}")
        return cls(of_action=groups, names=tuple(names), candidates=size + BLOCKS, exact=exact)

    def residuals(self, chunk: Chunk) -> Float64Array:
        """The residuals e [n, G]; see the top of this file."""
        logs, n = chunk.logs, len(chunk.logs)
        member = np.zeros((logs.n_actions, len(self.names)))
        inside = self.of_action >= 0
        member[np.flatnonzero(inside), self.of_action[inside]] = 1.0
        taken = member[logs.actions]  # [n, G]
        if self.exact:
            assert logs.behaviour is not None
            result: Float64Array = taken - logs.behaviour @ member
            return result
        assert logs.propensities is not None
        first, rows = first_rows(logs.actions, logs.n_actions), np.arange(n)
        new = taken * (first[logs.actions] == rows)[:, None]  # [n, G]
        known = np.cumsum(new, axis=0) - new  # actions of each group that were chosen before
        if logs.candidates is not None:
            known = (logs.candidates & (first < rows[:, None])).astype(np.float64) @ member
        weighted: Float64Array = (taken - new) / logs.propensities[:, None] - known
        return weighted
