"""Overlap between the policy's decisions and the logged ones: histograms for plots, for logs of any size."""

from __future__ import annotations

from functools import partial

import numpy as np

from shpi.ope.estimators.importance import window_weights
from shpi.ope.inference.weighting import Ended, add_up
from shpi.ope.problem import Chunk, Problem
from shpi.ope.results import Histogram, Overlap
from shpi.protocols import Float64Array

# What is smaller or larger counts in the first or last bin; a probability of 0 counts in ``never`` only.
CHANCES = 10.0 ** np.linspace(-4, 0, 21)
RATIOS = 10.0 ** np.linspace(-4, 4, 41)
MANY_STEPS = 100  # points of the curve over steps


def overlap(problem: Problem) -> Overlap:
    """One pass over the log. Refuses a log without propensities."""
    chances, ratios, never, _, total, squares = problem.total(partial(_sums, problem=problem), _add)
    steps = np.unique(np.linspace(0, problem.horizon - 1, MANY_STEPS).round().astype(np.int64))
    # (sum b w)^2 / sum (b w)^2 with the whole product w_{0:t} [H], as a number of users
    users: Float64Array = np.where(squares > 0, total**2 / np.where(squares > 0, squares, 1.0), 0.0)
    effective = (users * problem.users / problem.trajectories)[steps]
    logged, policy, of_ratios = (
        Histogram(edges=tuple(edges.tolist()), counts=tuple(int(count) for count in counts))
        for edges, counts in ((CHANCES, chances[0]), (CHANCES, chances[1]), (RATIOS, ratios))
    )
    return Overlap(
        logged=logged,
        policy=policy,
        ratios=of_ratios,
        never=int(never),
        steps=tuple(int(t) + 1 for t in steps),
        effective_users=tuple(float(users) for users in effective),
    )


Sums = tuple[Float64Array, Float64Array, float, Float64Array, Float64Array, Float64Array]


def _sums(chunk: Chunk, problem: Problem) -> Sums:
    """Of mu(a|x) and pi(a|x) of the logged actions [2, bins], of their ratio, and where pi(a|x) = 0.

    Only positive values count, and the outer bins are open. Then the largest log weight of each step, and the
    sums of weights and of their squares without it [H] each.
    """
    ratio = np.exp(np.minimum(chunk.log_ratios, 700.0))
    logged = chunk.logs.propensities
    assert logged is not None  # log_ratios has refused already
    of_logged, of_taken, of_ratio = (
        np.histogram(np.clip(values[values > 0], edges[0], edges[-1]), edges)[0].astype(np.float64)
        for values, edges in ((logged, CHANCES), (chunk.taken, CHANCES), (ratio, RATIOS))
    )
    weights = window_weights(chunk, None)
    ended, rows = Ended.of(chunk, weights, problem), weights.rows - np.log(problem.kept[chunk.steps])
    top = ended.top()
    np.maximum.at(top, chunk.steps, rows)
    scale = np.where(np.isfinite(top), top, 0.0)
    scaled = np.exp(rows - scale[chunk.steps])
    total, squares = (
        add_up(chunk.steps, scaled**power, problem.horizon) + ended.weight(scale, power=power)
        for power in (1, 2)
    )
    return np.stack([of_logged, of_taken]), of_ratio, float((ratio == 0).sum()), top, total, squares


def _add(left: Sums, right: Sums) -> Sums:
    """The sums of two groups of users, the weights without the largest log weight of both."""
    top = np.maximum(left[3], right[3])
    totals = [np.zeros(len(top)), np.zeros(len(top))]
    for *_, mine, total, squares in (left, right):
        known = np.isfinite(mine)  # where no weight is positive there is nothing to add
        factor = np.where(known, np.exp(np.where(known, mine, 0.0) - np.where(known, top, 0.0)), 0.0)
        totals = [totals[0] + total * factor, totals[1] + squares * factor**2]
    return left[0] + right[0], left[1] + right[1], left[2] + right[2], top, totals[0], totals[1]
