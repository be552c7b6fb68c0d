"""Why Q-learning beats SHPI on random treatment: chains of improvements, and the features that can see them.

SHPI improves on V^mu. Where mu treats at random, V^mu knows nothing of patients who are treated well for
long. Here V is estimated again for each new policy pi, by LSTD with the ratio of one step,

    sum_t rho_t phi(x_t) (r_t + gamma phi(x_{t+1})'theta - phi(x_t)'theta) = 0,     rho = pi(a|x) / mu(a|x)

and pi is greedy on a regression of r + gamma V(x') - V(x). The first round has V^mu. Logs of HIV with epsilon
= 1, seeds from 100; lines and random Fourier features of several bandwidths, in medians of the distance.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.report import Row
from shpi.data.logged import LoggedData
from shpi.envs import make
from shpi.envs.logging import LoggingPolicy
from shpi.envs.rollout import mean_return, rollout
from shpi.features import Chain, FeatureMap, Identity, RandomFourier, Standardise, Union
from shpi.policies import Greedy, LinearScorer
from shpi.values.transitions import next_states

SEEDS, USERS, NEW_USERS, GAMMA, RIDGE, ROUNDS = (100, 101, 102), 2000, 100, 0.99, 1.0, 6
BANDWIDTHS = ((2.0, 100), (1.0, 200), (0.5, 300))  # with the number of features


def run() -> list[Row]:
    return [row for seed in SEEDS for row in compared(seed)]


def compared(seed: int) -> Iterator[Row]:
    """The mean return of mu, and of every round."""
    world = make("hiv")
    mu = LoggingPolicy(world, 1.0)
    logs = rollout(world, mu, USERS, seed)
    tried = seed + 10_007
    yield Row(f"seed {seed}: mu", mean_return(world, mu, NEW_USERS, tried).mean, "return")
    for bandwidth, size in BANDWIDTHS:
        curves = RandomFourier(n_features=size, bandwidth_factor=bandwidth, intercept=False, seed=seed)
        features = Chain((Standardise(), Union((Identity(), curves)))).fit(logs.contexts[::10])
        for number, policy in enumerate(chained(logs, features), start=1):
            found = mean_return(world, policy, NEW_USERS, tried).mean
            yield Row(f"seed {seed}: bandwidth {bandwidth:g}, round {number}", found, "return")


def chained(logs: LoggedData, features: FeatureMap) -> Iterator[Greedy]:
    """The policy of every round."""
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
