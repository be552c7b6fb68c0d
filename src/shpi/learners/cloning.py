r"""Behaviour cloning: the logging policy mu(a|x), recovered from the log by multinomial logistic regression.

    mu(a|x) ∝ exp(phi(x)'w_a)   over the candidates,      w = argmin  mean log-loss + (prior / 2n) |w|^2

A sample of the decisions is enough, and a few steps of L-BFGS: what is wanted is mu where it is plain, not
its last digit. Least squares of the indicators is faster still, but its small spurious probabilities for
actions that mu never takes cost `BoundedRatio` a percent of the attainable improvement on synthetic logs.
The features are chosen by the log-loss on held-out users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shpi.data.logged import LoggedData
from shpi.data.softmax import fit_softmax
from shpi.errors import ConfigError
from shpi.features import Chain, FeatureMap, Identity, RandomFourier, Recipe, Standardise
from shpi.features.base import fit_features
from shpi.policies.logistic import LogisticPolicy
from shpi.protocols import Int64Array

FEW_DIMENSIONS = 8  # up to here random Fourier features are tried beside linear ones
CELLS = 2_000_000  # pairs of a decision and an action that a fit looks at
LEAST_ROWS, MOST_ROWS = 10_000, 60_000
STEPS = 40  # of L-BFGS; a hundred bring no better policies
CHOICE_STEPS = 15
BLOCK = 50_000


@dataclass(frozen=True, kw_only=True)
class BehaviourCloning:
    """Imitate the log.

    Args:
        features: a recipe or fitted map; None takes linear ones, up to 8 dimensions after a comparison with
            random Fourier features of several bandwidths.
        prior: of the coefficients, see above.
        seed: of the features, of the sample and of the split that chooses among features.
    """

    features: Recipe | FeatureMap | None = None
    prior: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.prior > 0:
            raise ConfigError(expected="a positive prior", found=str(self.prior), where="BehaviourCloning")

    def fit(self, logs: LoggedData) -> LogisticPolicy:
        """Choose the features, then maximise the likelihood on a sample."""
        recipes = (
            [self.features] if self.features is not None else default_recipes(logs.schema.width, self.seed)
        )
        maps = [with_intercept(recipe, logs) for recipe in recipes]
        rng = np.random.default_rng(self.seed)
        few = len(maps) == 1 or logs.n_users < 4
        chosen = maps[0] if few else min(maps, key=_held_out_loss(logs, self.prior, self.seed))
        rows = rng.permutation(len(logs))[: _sample_size(logs)]
        return imitate(logs, chosen, rows, self.prior, STEPS)


def _sample_size(logs: LoggedData) -> int:
    return int(np.clip(CELLS // logs.n_actions, LEAST_ROWS, MOST_ROWS))


def _held_out_loss(logs: LoggedData, prior: float, seed: int) -> Callable[[FeatureMap], float]:
    """The log-loss of a feature map on a quarter of the users, after a short fit to the others."""
    rng = np.random.default_rng(seed)
    users = rng.permutation(logs.n_users)
    out = np.isin(logs.user_codes, users[: max(1, len(users) // 4)])[logs.trajectory_of_row]
    if out.all():
        out = np.arange(len(logs)) % 4 == 0
    size = _sample_size(logs) // 3
    train, test = (rng.permutation(np.flatnonzero(side))[:size] for side in (~out, out))

    def loss(features: FeatureMap) -> float:
        policy = imitate(logs, features, train, prior, CHOICE_STEPS)
        mask = None if logs.candidates is None else logs.candidates[test]
        probs = policy.action_probs(logs.contexts[test], mask)
        taken = probs[np.arange(len(test)), logs.actions[test]]
        return float(-np.log(np.maximum(taken, 1e-6)).mean())

    return loss


def default_recipes(width: int, seed: int) -> list[Recipe | FeatureMap]:
    """Linear features, and for narrow contexts random Fourier features of four bandwidths."""
    linear: Recipe = Chain((Standardise(), Identity()))
    if not 0 < width <= FEW_DIMENSIONS:
        return [linear]
    fourier = (RandomFourier(n_features=200, bandwidth_factor=c, seed=seed) for c in (0.1, 0.25, 0.5, 1.0))
    return [linear, *(Chain((Standardise(), recipe)) for recipe in fourier)]


def with_intercept(recipe: Recipe | FeatureMap, logs: LoggedData) -> FeatureMap:
    """The fitted features, with a constant among them."""
    from shpi.oracles.ridge import with_intercept as add

    return add(fit_features(recipe, logs.contexts[:: 1 + len(logs) // BLOCK]))


def imitate(
    logs: LoggedData, features: FeatureMap, rows: Int64Array, prior: float, steps: int
) -> LogisticPolicy:
    """The logistic regression on some of the rows."""
    phi = features.transform(logs.contexts[rows]).astype(np.float32)
    mask = None if logs.candidates is None else logs.candidates[rows]
    weights = fit_softmax(
        phi, logs.actions[rows], mask, n_actions=logs.n_actions, prior=prior, max_iterations=steps
    )
    seen = np.bincount(logs.actions, minlength=logs.n_actions) > 0
    return LogisticPolicy(weights.T, features, seen)
