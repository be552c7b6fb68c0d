r"""Backshift: rewards recovered from a value, for logs that have none (appendix of the paper).

    per transition    r_t = V(x_t) - gamma V(x_{t+1})
    smoothed          r(x) = E[ V(x_t) - gamma V(x_{t+1}) | x_t = x ],  by ridge regression on features of x

**The per-transition form says nothing about actions when it is used with the same V as bonus.** Then
delta_t = r_t + gamma V(x_{t+1}) - V(x_t) = 0 for every row, so every residual advantage is 0, and every raw
one has mean 0. The reason: V^mu(x) - gamma E[V^mu(x')|x, a] is not r(x, a) but r(x, a) - A^mu(x, a).

The smoothed form is right where rewards depend on the context alone, r(x, a) = r(x), as nearly in the paper's
synthetic task: then r(x) = V^mu(x) - gamma E_mu[V^mu(x')|x], and delta_t keeps what the action does to V(x').
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shpi.data.logged import LoggedData
from shpi.features import FeatureMap, Recipe
from shpi.protocols import BoolArray, Float64Array
from shpi.values._lstd.choose import Choice, choose, default_recipes
from shpi.values._lstd.moments import LstdSums
from shpi.values.base import StateValues, checked_gamma
from shpi.values.lstd import solve
from shpi.values.transitions import next_known


def backshift_rewards(
    values: StateValues, logs: LoggedData, *, gamma: float
) -> tuple[Float64Array, BoolArray]:
    """r_t = V(x_t) - gamma V(x_{t+1}) and whether it is known, [n] each; 0 where it is not known."""
    checked_gamma(gamma, below_one=False)
    known = next_known(logs)
    rewards = values.rows - gamma * values.following(logs)
    return np.where(known, rewards, 0.0), known


def with_backshift(
    logs: LoggedData,
    values: StateValues,
    *,
    gamma: float,
    smooth: bool = True,
    features: Recipe | FeatureMap | None = None,
    seed: int = 0,
) -> LoggedData:
    """The log with rewards recovered from V, which replace any rewards it had.

    Args:
        logs: the log, with or without rewards.
        values: V at its contexts.
        gamma: the discount of V.
        smooth: average over actions, see the module docstring; False is the form printed in the paper.
        features: features of the smoothing regression; None chooses as LSTD does.
        seed: random seed of that choice.
    """
    rewards, known = backshift_rewards(values, logs, gamma=gamma)
    observed = None if known.all() else known
    shifted = replace(logs, rewards=rewards, reward_observed=observed)
    if not smooth:
        return shifted
    choice = _regression(shifted, features, seed)
    fitted = solve([LstdSums.of(shifted, choice.features, gamma=0.0)], choice)
    return replace(logs, rewards=fitted(logs.contexts), reward_observed=None)


def _regression(logs: LoggedData, features: Recipe | FeatureMap | None, seed: int) -> Choice:
    """LSTD with gamma = 0 is ridge regression of the rewards on the features."""
    recipes = default_recipes(logs.contexts.shape[1], 200, seed) if features is None else (features,)
    ridges = (0.3, 3.0, 30.0)
    return choose(logs, recipes, ridges, gamma=0.0, lookahead=1, folds=3, max_rows=20_000, seed=seed)
