r"""The influence of each user through G, the estimated probability not to be censored.

Raising log g_s (g_s: the share that is not censored after step s) lowers the weight of all trajectories that
went on after s, at every later step, relative to those that had terminated by then. Hence, with V_st the
share of step t's denominator that belongs to trajectories which terminated at or before step s,

    d J / d log g_s = - (N/U) sum_{t>s} gamma^t M_t V_st

and a trajectory that went on after s moves log g_s by (1[not censored] - g_s) / (g_s number that went on).
Without censoring, or without terminations, all of this is 0.
"""

from __future__ import annotations

import numpy as np

from shpi.ope.problem import Chunk, Problem
from shpi.protocols import Float64Array


def slopes(
    problem: Problem,
    coefficient: Float64Array,
    top: Float64Array,
    ended: Float64Array,
) -> Float64Array:
    """U dJ / d log g_s, divided by the number of trajectories with a decision at step s + 1, [H - 1].

    Args:
        problem: the evaluation problem.
        coefficient: U (N/U) gamma^t M_t / D_t, scaled by exp(top) [H].
        top: logarithm of that scale [H].
        ended: log of the sum of b v over the trajectories that terminated before step t [H].
    """
    horizon = problem.horizon
    later = np.zeros(horizon + 1)  # sum over t' >= t of coefficient exp(top_t - top_t')
    for t in range(horizon - 1, -1, -1):
        ahead = later[t + 1] * np.exp(min(top[t] - top[t + 1], 600.0)) if t + 1 < horizon else 0.0
        later[t] = coefficient[t] + ahead
    share = np.exp(ended[1:] - top[1:])  # terminated at or before step s = t - 1
    return -share * later[1:horizon] / problem.alive[1:]


def moved(problem: Problem, chunk: Chunk, per_unit: Float64Array) -> Float64Array:
    """The influence of each user through G [users of the chunk]."""
    logs = chunk.logs
    stays_observed = problem.kept[1:] / problem.kept[:-1]  # [H - 1] g_s
    stays = np.append(0.0, np.cumsum(per_unit * (1 - stays_observed)))  # sum over s < j
    lengths = np.diff(logs.offsets)
    total = stays[lengths - 1]
    cut = ~logs.terminated & (lengths < problem.horizon)
    total[cut] -= (per_unit * stays_observed)[lengths[cut] - 1]
    return np.bincount(logs.user_codes, weights=total, minlength=logs.n_users).astype(np.float64)
