"""The simulators of the paper and KuaiRand's world as benchmarks' worlds: new users try a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.worlds.base import Truth, World
from shpi.data.logged import LoggedData
from shpi.envs.rollout import mean_return, rollout
from shpi.experiments._run.worlds import NEW_USERS, logging_policy, world
from shpi.policies import ConstantPolicy
from shpi.protocols import BoolArray, Float64Array, FloatArray, IntArray, Policy, Simulator, Step

CHOOSING_USERS = 1_000  # on whom the best constant action is chosen; others than those who try it
CHOOSING_SEED = 50_021


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedWorld(World):
    """A registered simulator under mu(epsilon).

    Args:
        simulator: its registered name.
        epsilon: of mu.
        params: of the simulator.
        new_users: how many try a policy.
        horizon: decisions after which new users are stopped; None: as in the log. With a larger one the truth
            is that of users who go on, as a learner assumes of a log that was cut off.
    """

    simulator: str
    epsilon: float
    params: Mapping[str, Any] = field(default_factory=dict)
    new_users: int = 500
    horizon: int | None = None

    def mu(self, seed: int) -> Policy:
        """The trained agent with random decisions; the same for every seed."""
        return logging_policy(self.simulator, self.params, self.epsilon)

    def make_log(self, seed: int) -> LoggedData:
        """The log of the seed."""
        return rollout(world(self.simulator, self.params), self.mu(seed), self.users, seed)

    def truth(self, policy: Policy, seed: int) -> Truth:
        """What new users bring, the same as in the results' experiments."""
        return self._tried(policy, self.new_users, seed + NEW_USERS)

    def best_constant(self, seed: int) -> ConstantPolicy:
        """The action that is best for everybody, chosen on users of its own by the headline."""
        count = world(self.simulator, self.params).n_actions
        constants = [ConstantPolicy(row) for row in np.eye(count)]
        return max(constants, key=lambda p: self._tried(p, CHOOSING_USERS, seed + CHOOSING_SEED).headline)

    def _tried(self, policy: Policy, users: int, seed: int) -> Truth:
        params = dict(self.params) if self.horizon is None else {**self.params, "horizon": self.horizon}
        tally = Tally(world(self.simulator, params), self.gamma)
        returns = mean_return(tally, policy, users, seed)
        return Truth(float(tally.total.mean()), returns.mean, tally.total)


class Tally:
    """A simulator that adds up the discounted rewards of its running users."""

    def __init__(self, simulator: Simulator, gamma: float) -> None:
        self._simulator, self._gamma = simulator, gamma
        self.total: Float64Array = np.zeros(0)  # [n]
        self._gone: BoolArray = np.zeros(0, dtype=bool)  # [n]
        self._weight = 1.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)

    def reset(self, n: int, seed: int, *, first: int = 0) -> FloatArray:
        """Start the users, who have earned nothing yet."""
        self.total, self._gone, self._weight = np.zeros(n), np.zeros(n, dtype=bool), 1.0
        return self._simulator.reset(n, seed, first=first)

    def step(self, actions: IntArray) -> Step:
        """One decision; what it brings is added."""
        step = self._simulator.step(actions)
        self.total += self._weight * np.where(self._gone, 0.0, step.rewards)
        self._gone, self._weight = step.ended.copy(), self._weight * self._gamma
        return step
