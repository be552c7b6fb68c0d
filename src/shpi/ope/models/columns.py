r"""Which columns of a context an outcome model looks at where it has no room for all.

With d features of a context (the intercept is one), codes [A, q] of actions and K folds, the sums of a model
(`shpi.ope.models.linear.ModelSums`) and its fits (`shpi.ope.models.backups.Backups`) are about

    K d^2 (A (2 + q) + 3 q^2)  numbers

which 1,000 columns and 10 actions bring to 12 GB. `MOST_NUMBERS` bounds them, whatever the columns and the
actions are. The columns that matter most for what followed in the log are taken,

    score_j = sum_c (sum_i m_ic y_i z_ij)^2 / sum_i m_ic^2

with z the standardised columns, m_i the code of the action that was taken, and y_i the discounted rewards
from decision i on, less their mean at its step. Only mu is involved: the policy that is evaluated has no say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shpi.features import FeatureMap, Standardise
from shpi.features.base import as_matrix, check_contexts
from shpi.features.chain import ChainMap
from shpi.ope.problem import Chunk, Problem
from shpi.protocols import BoolArray, Float64Array, FloatArray, Int64Array

MOST_NUMBERS = 60_000_000  # 0.5 GB
_ENTRIES = 3_000_000  # of the largest temporary matrix


@dataclass(frozen=True, kw_only=True, eq=False)
class Take:
    """Some columns of a context: a recipe, and its own fitted map."""

    columns: Int64Array  # [p]
    width_in: int

    @property
    def width(self) -> int:
        """p, the number of columns taken."""
        return len(self.columns)

    def transform(self, contexts: FloatArray) -> Float64Array:
        """The columns [n, p]."""
        return as_matrix(check_contexts(contexts, self.width_in)[:, self.columns])


def room(codes: Float64Array, folds: int) -> int:
    """How many columns a model with these codes [A, q] can look at; at least one."""
    actions, q = codes.shape
    return max(1, math.isqrt(MOST_NUMBERS // (folds * (actions * (2 + q) + 3 * q * q))) - 1)


def telling_columns(problem: Problem, codes: Float64Array, count: int) -> Int64Array:
    """The ``count`` columns with the largest scores, in the order of the log; see the top of this file."""
    chunk = problem.sample()
    contexts, steps = chunk.logs.contexts, chunk.steps
    returns, _ = returns_of(problem, chunk)
    means = np.bincount(steps, weights=returns) / np.maximum(np.bincount(steps), 1)
    code = codes[chunk.logs.actions] if len(codes) > 1 else np.ones((len(steps), 1))  # [n, q]
    weighted = code * (returns - means[steps])[:, None]
    size = max(_ENTRIES // contexts.shape[1], 64)
    standard = Standardise().fit(contexts[:: 1 + len(contexts) // size])
    moments = np.zeros((code.shape[1], contexts.shape[1]))
    for start in range(0, len(contexts), size):
        rows = slice(start, start + size)
        moments += weighted[rows].T @ standard.transform(contexts[rows])
    scores = np.sum(moments**2 / np.maximum(np.sum(code**2, axis=0), 1e-12)[:, None], axis=0)
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def note_of(features: FeatureMap) -> tuple[str, ...]:
    """What an estimate says of a model that does not look at all columns; nothing of one that does."""
    first = features.steps[0] if isinstance(features, ChainMap) else features
    if not isinstance(first, Take):
        return ()
    return (f"the model uses {first.width:,} of {first.width_in:,} columns, those most tied to returns",)


def returns_of(problem: Problem, chunk: Chunk) -> tuple[Float64Array, BoolArray]:
    """The discounted sum of rewards from each decision to the horizon [n], and whether it is known [n]."""
    logs = chunk.logs
    returns = np.where(chunk.observed, chunk.rewards, 0.0)
    order, bounds = chunk.by_step
    last = np.zeros(len(logs), dtype=bool)
    last[logs.offsets[1:] - 1] = True
    for t in range(len(bounds) - 3, -1, -1):
        rows = order[bounds[t] : bounds[t + 1]]
        rows = rows[~last[rows]]
        returns[rows] += problem.gamma * returns[rows + 1]
    ends = logs.terminated | (np.diff(logs.offsets) == problem.horizon)
    whole = np.minimum.reduceat(chunk.observed, logs.offsets[:-1])
    return returns, (ends & whole)[logs.trajectory_of_row]
