"""Policies of every make, over the same contexts."""

from __future__ import annotations

import numpy as np

from shpi.features import Chain, Hinges, Identity, RandomFourier, Standardise, Union
from shpi.policies import (
    AmongLikely,
    BehaviourRegularised,
    BoundedRatio,
    ConstantPolicy,
    EpsilonGreedy,
    Greedy,
    LinearScorer,
    Mixture,
    MlpScorer,
    Policy,
    Softmax,
    Tilted,
    UniformPolicy,
)
from shpi.policies.near_mu.logistic import LogisticPolicy


def policies(d: int = 5, n_actions: int = 7, seed: int = 0) -> dict[str, Policy]:
    rng = np.random.default_rng(seed)
    x = rng.normal(3.0, 2.0, size=(300, d))
    lines = Chain((Standardise(), Identity())).fit(x)
    waves = Chain((Standardise(), RandomFourier(n_features=20))).fit(x)
    bends = Union((Identity(), Hinges(knots=2))).fit(x)
    linear, curved, bent = (
        LinearScorer(rng.normal(size=(n_actions, phi.width)), phi) for phi in (lines, waves, bends)
    )
    known = np.ones(n_actions, dtype=bool)
    mu = LogisticPolicy(rng.normal(size=(n_actions, lines.width)), lines, known, 0.02)
    some = LogisticPolicy(rng.normal(size=(n_actions, waves.width)), waves, np.arange(n_actions) > 1)
    sizes = [(lines.width, 8), (8, n_actions)]
    mlp = MlpScorer([rng.normal(size=s) for s in sizes], [rng.normal(size=s[1]) for s in sizes], lines)
    fixed = ConstantPolicy(np.arange(1, n_actions + 1) / (n_actions * (n_actions + 1) / 2))
    return {
        "uniform": UniformPolicy(n_actions),
        "constant": fixed,
        "greedy": Greedy(linear),
        "greedy bent": Greedy(bent),
        "epsilon": EpsilonGreedy(linear, 0.1),
        "epsilon ties": EpsilonGreedy(linear, 0.1, 1e-4),
        "softmax": Softmax(curved, 0.7),
        "mlp": Softmax(mlp),
        "logistic": mu,
        "some seen": some,
        "regularised": BehaviourRegularised(linear, some, 0.5),
        "bounded": BoundedRatio(linear, mu, 1.2),
        "tilted": Tilted(linear, mu, 0.5),
        "tilted twice": Tilted(linear, mu, 1.5, 2.0),
        "tilted apart": Tilted(curved, mu, 2.0, 1.5),
        "tilted some": Tilted(linear, some, 0.5),
        "likely": AmongLikely(linear, mu, 0.2),
        "mixture": Mixture((Tilted(linear, mu, 0.5), fixed, mu), (0.5, 0.2, 0.3)),
    }
