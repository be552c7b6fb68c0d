"""The task of the paper's tables: logs of an epsilon-greedy agent, and a policy's score on new users."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi.data.logged import LoggedData
from shpi.envs.logging import LoggingPolicy
from shpi.envs.synthetic.simulator import Synthetic
from shpi.protocols import Float64Array, FloatArray, Policy

USERS, ROLLOUTS, GAMMA = 2000, 200, 0.99
NEW_USERS = 10_000  # first seed of the users on whom policies are tested


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """By user: the attained share of the possible improvement, and the discounted sum of rewards."""

    attained: Float64Array  # [n]
    discounted: Float64Array  # [n]


def logging_policy(epsilon: float) -> LoggingPolicy:
    """The trained agent, epsilon-greedy."""
    return LoggingPolicy(Synthetic.small(), epsilon)


def log_of(epsilon: float, seed: int, users: int = USERS) -> LoggedData:
    """The log that one trial learns from."""
    return Synthetic.small().rollout(logging_policy(epsilon), users, seed)


def outcome(policy: Policy, seed: int, users: int = ROLLOUTS) -> Outcome:
    """Test a policy on new users, the same for every policy of a trial."""
    world, chance = Synthetic.small(), np.random.default_rng(seed)
    contexts: FloatArray = world.reset(users, NEW_USERS + seed)
    total = np.zeros(users)
    for t in range(world.horizon):
        below = policy.action_probs(contexts).cumsum(axis=1)
        step = world.step((below > chance.random((users, 1)) * below[:, -1:]).argmax(axis=1))
        contexts, total = step.contexts, total + GAMMA**t * step.rewards
    return Outcome(attained=world.fraction_attained(), discounted=total)


def standard_error(differences: Float64Array) -> float:
    """The standard error of the mean of paired differences."""
    return float(differences.std(ddof=1) / np.sqrt(len(differences)))
