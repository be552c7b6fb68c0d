r"""The variance that rare extreme outcomes add to a lift.

A disaster that struck five users says little about how often it strikes, and less about how often it strikes
after actions that the policy favours: by chance all five may have small importance weights, and their
influences then show no danger. But the distribution of the weights is known from all users. So for the m
users whose sums of rewards lie far from all others (5 standard deviations of the rest), with mean square
distance S^2, the variance of their part in the lift is taken to be at least

    lambda_m S^2 E[(w - 1)^2] / U^2,      lambda_m: the Poisson upper limit of an expectation, given m

where w is a user's importance weight over the whole trajectory, and E is over all users. With 34 or more such
users (or a tenth of all users), nothing is added.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from shpi._core.distributions import chi_square_quantile
from shpi.ope.estimators.baseline import on_policy
from shpi.ope.inference.intervals import FAR, RARE
from shpi.ope.inference.weighting import add_up
from shpi.ope.problem import Chunk, Problem, once
from shpi.ope.results import Estimate
from shpi.protocols import BoolArray, Float64Array

SURE = 0.95  # confidence of the Poisson upper limit


def unseen_variance(problem: Problem, estimate: Estimate, share: float = 1.0) -> float:
    """The variance to add to a lift because few users had extreme outcomes.

    Args:
        problem: the evaluation problem, with its metric.
        estimate: estimate of the lift; variance that its influences already show is not added again.
        share: share of the policy in a mixture with mu.
    """
    far, returns = _far(problem), on_policy(problem).influence
    if not far.any():
        return 0.0
    sizes = returns[far] - float(np.mean(returns[~far]))
    most = float(chi_square_quantile(SURE, 2 * (int(far.sum()) + 1))) / 2
    weights = problem.by_user(partial(_weights, share=share))  # [U]
    spread = float(np.mean((weights / max(float(weights.mean()), 1e-300) - 1) ** 2))
    expected = most * float(np.mean(sizes**2)) * spread
    shown = float(np.sum(estimate.influence_lift[far] ** 2))
    return max(expected - shown, 0.0) / problem.users**2


@once
def _far(problem: Problem) -> BoolArray:
    """The largest group of fewer than 34 users who lie far from all others, on either side [U]."""
    returns = on_policy(problem).influence
    users = len(returns)
    order = np.argsort(-np.abs(returns - np.median(returns)))
    far = np.zeros(users, dtype=bool)
    for m in range(min(RARE[-1], users // 10), 0, -1):
        rest = returns[order[m:]]
        distance = abs(float(returns[order[m - 1]]) - float(rest.mean()))
        if distance > FAR * float(rest.std()) and distance > 0:
            more = m < min(RARE[-1], users // 10)
            far[order[:m]] = more  # at the limit of the search there may be more of them: not rare
            break
    return far


def _weights(chunk: Chunk, share: float) -> Float64Array:
    """The product of the mixture's ratios over a trajectory, averaged per user [users of the chunk]."""
    logs = chunk.logs
    with np.errstate(divide="ignore"):
        ratios = np.log1p(share * np.expm1(chunk.log_ratios))
    products = np.exp(np.minimum(np.add.reduceat(ratios, logs.offsets[:-1]), 300.0))
    count = np.bincount(logs.user_codes, minlength=logs.n_users)
    return add_up(logs.user_codes, products, logs.n_users) / count
