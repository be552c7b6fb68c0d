"""Behaviour cloning: the logging policy mu(a|x), recovered from the log in closed form.

    W = (Phi'Phi + ridge I)^{-1} Phi' Y,   Y[i, a] = 1(a_i = a),      mu(a|x) ∝ max(phi(x)'w_a, 0)

The bandwidth of the features is chosen by the log-loss on held-out users.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features import Chain, FeatureMap, Identity, RandomFourier, Recipe, Standardise
from shpi.features.base import fit_features
from shpi.policies.cloned import ClonedPolicy
from shpi.protocols import Float64Array, Int64Array

FEW_DIMENSIONS = 8  # up to here random Fourier features, beyond it linear ones
CHOICE_ROWS = 30_000
BLOCK = 50_000


@dataclass(frozen=True, kw_only=True)
class BehaviourCloning:
    """Imitate the log.

    Args:
        features: a recipe or fitted map; None chooses among random Fourier features of several bandwidths
            up to 8 dimensions, and takes linear ones beyond.
        ridge: weight of the prior "no action", counted in decisions.
        seed: of the features and of the split that chooses among them.
    """

    features: Recipe | FeatureMap | None = None
    ridge: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.ridge > 0:
            raise ConfigError(expected="a positive ridge", found=str(self.ridge), where="BehaviourCloning")

    def fit(self, logs: LoggedData) -> ClonedPolicy:
        """Choose the features, then solve on the whole log."""
        recipes = (
            [self.features] if self.features is not None else default_recipes(logs.schema.width, self.seed)
        )
        maps = [with_intercept(recipe, logs) for recipe in recipes]
        chosen = maps[0] if len(maps) == 1 else min(maps, key=lambda phi: self._held_out_loss(logs, phi))
        return solve(logs, chosen, np.arange(len(logs)), self.ridge)

    def _held_out_loss(self, logs: LoggedData, features: FeatureMap) -> float:
        rng = np.random.default_rng(self.seed)
        users = rng.permutation(logs.n_users)
        out = np.isin(logs.user_codes, users[: max(1, len(users) // 4)])[logs.trajectory_of_row]
        if out.all():
            out = np.arange(len(logs)) % 4 == 0
        train, test = (rng.permutation(np.flatnonzero(side))[:CHOICE_ROWS] for side in (~out, out))
        policy = solve(logs, features, train, self.ridge)
        mask = None if logs.candidates is None else logs.candidates[test]
        probs = policy.action_probs(logs.contexts[test], mask)
        taken = probs[np.arange(len(test)), logs.actions[test]]
        return float(-np.log(np.maximum(taken, 1e-6)).mean())


def default_recipes(width: int, seed: int) -> list[Recipe | FeatureMap]:
    """Random Fourier features of four bandwidths for narrow contexts, linear features for wide ones."""
    if not 0 < width <= FEW_DIMENSIONS:
        return [Chain((Standardise(), Identity()))]
    return [
        Chain((Standardise(), RandomFourier(n_features=200, bandwidth_factor=factor, seed=seed)))
        for factor in (0.1, 0.25, 0.5, 1.0)
    ]


def with_intercept(recipe: Recipe | FeatureMap, logs: LoggedData) -> FeatureMap:
    """The fitted features, with a constant among them."""
    from shpi.oracles.ridge import with_intercept as add

    return add(fit_features(recipe, logs.contexts[:: 1 + len(logs) // BLOCK]))


def solve(logs: LoggedData, features: FeatureMap, rows: Int64Array, ridge: float) -> ClonedPolicy:
    """Least squares of the indicators on the features of the chosen rows, in blocks."""
    width = features.width
    gram, sums = np.zeros((width, width)), np.zeros((logs.n_actions, width))
    for start in range(0, len(rows), BLOCK):
        part = rows[start : start + BLOCK]
        phi = features.transform(logs.contexts[part])
        gram += phi.T @ phi
        np.add.at(sums, logs.actions[part], phi)
    factor = scipy.linalg.cho_factor(gram + ridge * np.eye(width))
    weights: Float64Array = scipy.linalg.cho_solve(factor, sums.T).T
    seen = np.bincount(logs.actions[rows], minlength=logs.n_actions) > 0
    return ClonedPolicy(weights, features, seen)
