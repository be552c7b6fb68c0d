"""Per-user lifts by plain importance weights: the values that the betting bound needs."""

from __future__ import annotations

from functools import partial

import numpy as np

from shpi.errors import ConfigError
from shpi.ope.estimators.importance import prefix_sums
from shpi.ope.inference.weighting import add_up
from shpi.ope.problem import Chunk, Problem
from shpi.protocols import Float64Array


def user_lifts(problem: Problem, share: float = 1.0) -> Float64Array:
    """sum_t gamma^t (w_t - 1) (r_t - r_min) of every user [U]; r_min is 0 unless rewards are negative.

    Args:
        problem: the evaluation problem.
        share: share of the policy in a mixture with the logging policy.
    """
    least = min(problem.reward_range[0], 0.0)
    lifts: Float64Array = problem.by_user(partial(_lifts, problem=problem, share=share, least=least))
    return lifts


def floor_of(problem: Problem) -> float:
    """The smallest possible value of a user: every weight 0, every reward the largest one of the log."""
    low, high = min(problem.reward_range[0], 0.0), problem.reward_range[1]
    most = problem.total(_most_trajectories, max)
    return -(high - low) * float(problem.discounts.sum()) * most


def _most_trajectories(chunk: Chunk) -> int:
    return int(np.bincount(chunk.logs.user_codes).max())


def _lifts(chunk: Chunk, problem: Problem, share: float, least: float) -> Float64Array:
    logs = chunk.logs
    if least < 0 and np.ptp(np.diff(logs.offsets)) > 0:
        raise ConfigError(
            expected="rewards of at least 0, or users with equally many decisions, for betting",
            found=f"rewards down to {least:.4g}",
            where="anytime",
            remedy="use the asymptotic sequence: Gate(anytime=True)",
        )
    with np.errstate(divide="ignore"):
        ratios = np.maximum(np.log1p(share * np.expm1(chunk.log_ratios)), -700.0)
    weights = np.exp(np.minimum(prefix_sums(chunk, ratios), 700.0))
    rewards = np.where(chunk.observed, chunk.rewards - least, 0.0)
    terms = problem.discounts[chunk.steps] * (weights - 1) * rewards
    return add_up(chunk.users, terms, logs.n_users)
