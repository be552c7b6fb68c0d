"""Check whether much of the value comes late, from decisions that few users reach.

The effective sample size is a mean over all steps, and users who left count at every later step, rightly:
they are known to bring nothing there. But the rewards at late steps come from the remaining users alone. If
1 % of the users (bots, fans) have hundreds of decisions, the weights of their long histories are almost all
0; in such logs, 95 % intervals over users covered 72 %.
"""

from __future__ import annotations

import numpy as np

from shpi.ope.estimators.base import LEAST_EFFECTIVE
from shpi.ope.estimators.importance import window_weights
from shpi.ope.problem import Problem
from shpi.ope.results import Diagnostic, Estimate
from shpi.protocols import Float64Array, Int64Array

MUCH = 0.2  # share of all absolute rewards; if more come late, their error can hide a typical lift


def about_late_value(problem: Problem, estimate: Estimate) -> list[Diagnostic]:
    """The share of the value at steps with too few effective users; for weights of the whole horizon only."""
    if estimate.weights is None or estimate.steps is not None or problem.horizon < 2:
        return []
    chunk = problem.sample()
    steps = chunk.steps
    effective = _effective(window_weights(chunk, None).rows, steps, problem.horizon)
    effective *= problem.users / chunk.logs.n_users
    rewards = problem.discounts[steps] * np.abs(chunk.rewards)
    value = np.bincount(steps, weights=rewards, minlength=problem.horizon)  # [H]
    total = float(value.sum())
    thin = effective < LEAST_EFFECTIVE
    share = float(value[thin].sum()) / total if total > 0 else 0.0
    sentence = f"{share:.0%} of all reward comes at decisions that fewer than {LEAST_EFFECTIVE:.0f} "
    sentence += "effective users reach"
    if share > MUCH:
        first = int(np.flatnonzero(thin)[0]) + 1
        sentence += (
            f", from decision {first} on: a few users with long histories dominate, and the interval may be "
            "too narrow. Use a shorter horizon or window, or leave out bots"
        )
    return [
        Diagnostic(
            name="late value",
            severity="warning" if share > MUCH else "fine",
            sentence=f"{sentence}.",
            figure=share,
            threshold=MUCH,
            estimator=estimate.name,
        )
    ]


def _effective(log_weights: Float64Array, steps: Int64Array, horizon: int) -> Float64Array:
    """(sum w)^2 / sum w^2 of the decisions at each step [H]; 0 where there are none."""
    top = np.full(horizon, -np.inf)
    np.maximum.at(top, steps, log_weights)
    with np.errstate(invalid="ignore"):  # where all weights of a step are 0
        weights = np.nan_to_num(np.exp(log_weights - top[steps]))
    sums, squares = (np.bincount(steps, weights=w, minlength=horizon) for w in (weights, weights**2))
    effective: Float64Array = np.divide(sums**2, squares, out=np.zeros(horizon), where=squares > 0)
    return effective
