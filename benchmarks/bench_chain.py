"""Why Q-learning beats SHPI on random treatment: chains of improvements, or networks?

SHPI improves on V^mu. If mu treats at random, V^mu has no data on patients who are treated well for long. So
V is estimated again for each new policy pi, by LSTD with the importance ratio of one step,

    sum_t rho_t phi(x_t) (r_t + gamma phi(x_{t+1})'theta - phi(x_t)'theta) = 0,     rho = pi(a|x) / mu(a|x)

and pi is greedy on a regression of r + gamma V(x') - V(x). The first round has V^mu. Features are linear and
random Fourier features of several bandwidths, in multiples of the median distance. For comparison: SHPI with
its own V and with a network, and BCQ with and without its constraint. Logs of HIV with epsilon = 1, seeds
from 100.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.report import Row
from benchmarks.trial import Trial
from shpi.data.logged import LoggedData
from shpi.features import Chain, FeatureMap, Identity, RandomFourier, Standardise, Union
from shpi.learners import DiscreteBCQ, OfflineSHPI
from shpi.learners.base import Learner
from shpi.policies import Greedy, LinearScorer
from shpi.values import FittedTD
from shpi.values.transitions import next_states

SEEDS, USERS, NEW_USERS, GAMMA, RIDGE, ROUNDS = (100, 101, 102), 2000, 100, 0.99, 1.0, 6
BANDWIDTHS = ((2.0, 100), (1.0, 200), (0.5, 300))  # (bandwidth, number of features)


def run() -> list[Row]:
    return [row for seed in SEEDS for row in compared(seed)]


def compared(seed: int) -> Iterator[Row]:
    """The mean return of mu, of the learners, and of every round of the chains."""
    trial = Trial.of("hiv", 1.0, USERS, seed)
    learners: dict[str, Learner] = {
        "SHPI": OfflineSHPI(progress=False, seed=seed),
        "SHPI, V a network": OfflineSHPI(value=FittedTD(), progress=False, seed=seed),
        "BCQ": DiscreteBCQ(progress=False, seed=seed),
        "BCQ without its constraint": DiscreteBCQ(threshold=0.0, progress=False, seed=seed),
    }
    yield Row(f"seed {seed}: mu", trial.tried(trial.mu, NEW_USERS), "return")
    for name, learner in learners.items():
        yield Row(f"seed {seed}: {name}", trial.tried(learner.fit(trial.logs), NEW_USERS), "return")
    for bandwidth, size in BANDWIDTHS:
        curves = RandomFourier(n_features=size, bandwidth_factor=bandwidth, intercept=False, seed=seed)
        features = Chain((Standardise(), Union((Identity(), curves)))).fit(trial.logs.contexts[::10])
        for number, policy in enumerate(chained(trial.logs, features), start=1):
            label = f"seed {seed}: chain, bandwidth {bandwidth:g}, round {number}"
            yield Row(label, trial.tried(policy, NEW_USERS), "return")


def chained(logs: LoggedData, features: FeatureMap) -> Iterator[Greedy]:
    """The policies of the chain, round by round."""
    assert logs.rewards is not None
    assert logs.propensities is not None
    rewards, rho = logs.rewards / logs.rewards.std(), np.ones(len(logs))
    here = features.transform(logs.contexts)
    ahead = np.concatenate([here, features.transform(logs.final_contexts)])[next_states(logs)]
    prior = RIDGE * np.eye(features.width)
    of_action = [np.flatnonzero(logs.actions == action) for action in range(logs.n_actions)]
    inverses = [np.linalg.inv(here[rows].T @ here[rows] + prior) for rows in of_action]
    for _ in range(ROUNDS):
        weighted = here * rho[:, None]
        theta = np.linalg.solve(weighted.T @ (here - GAMMA * ahead) + prior, weighted.T @ rewards)
        advantages = rewards + (GAMMA * ahead - here) @ theta
        weights = np.stack(
            [
                inverse @ (here[rows].T @ advantages[rows])
                for inverse, rows in zip(inverses, of_action, strict=True)
            ]
        )
        yield Greedy(LinearScorer(weights, features))
        rho = ((here @ weights.T).argmax(axis=1) == logs.actions) / logs.propensities
