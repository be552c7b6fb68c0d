"""A log of one of the worlds, and new users on whom policies learned from it are tested."""

from __future__ import annotations

from dataclasses import dataclass

from shpi.data.logged import LoggedData
from shpi.envs import make
from shpi.envs.logging import LoggingPolicy
from shpi.envs.rollout import mean_return, rollout
from shpi.protocols import Policy, Simulator


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """A log of mu(epsilon), with its simulator."""

    simulator: Simulator
    mu: Policy
    logs: LoggedData
    seed: int

    @classmethod
    def of(cls, world: str, epsilon: float, users: int, seed: int) -> Trial:
        """Simulate the log."""
        simulator = make(world)
        mu = LoggingPolicy(simulator, epsilon)
        return cls(simulator=simulator, mu=mu, logs=rollout(simulator, mu, users, seed), seed=seed)

    def tried(self, policy: Policy, users: int) -> float:
        """The mean return of new users, who are the same for every policy."""
        return float(mean_return(self.simulator, policy, users, self.seed + 10_007).mean)
