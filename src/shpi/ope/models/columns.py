r"""Choose the context columns of an outcome model that has no room for all of them.

With d features of a context (the intercept is one), codes [A, q] of actions and K folds, the sums of a model
(`shpi.ope.models.linear.ModelSums`) and its fits (`shpi.ope.models.backups.Backups`) are about

    K d^2 (A (2 + q) + 3 q^2)  numbers

which is 12 GB for 1,000 columns and 10 actions. `MOST_NUMBERS` bounds them. The columns that best predict the
logged returns are taken, by the score

    score_j = sum_c (sum_i m_ic y_i z_ij)^2 / sum_i m_ic^2

with z the standardised columns, m_i the code of the taken action, and y_i the discounted rewards from
decision i on, minus their mean at its step. The choice does not depend on the evaluated policy.
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

MOST_NUMBERS = 60_000_000  # float64 numbers in the sums and fits of a model: 0.5 GB
_ENTRIES = 3_000_000  # entries of the largest temporary matrix


@dataclass(frozen=True, kw_only=True, eq=False)
class Take:
    """Selects some columns of a context; it is both the recipe and the fitted map."""

    columns: Int64Array  # [p] indices of the columns
    width_in: int  # number of columns of a context

    @property
    def width(self) -> int:
        """p, the number of columns taken."""
        return len(self.columns)

    def transform(self, contexts: FloatArray) -> Float64Array:
        """The columns [n, p]."""
        return as_matrix(check_contexts(contexts, self.width_in)[:, self.columns])


def room(codes: Float64Array, folds: int) -> int:
    """The number of columns that a model with these codes [A, q] has room for; at least one."""
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
    """The note of an estimate whose model uses only some columns; empty if it uses all."""
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
