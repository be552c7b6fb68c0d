"""What a benchmark knows about a log: how to write one, and what a policy learned from it is truly worth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from shpi.data.logged import LoggedData
from shpi.protocols import Float64Array, Policy

GAMMA = 0.99  # the discount of the promised metric, unless a world says otherwise


class Lift(NamedTuple):
    """The true gain over mu, and the standard error with which it is known (0 where it is exact)."""

    value: float
    error: float


class Truth(NamedTuple):
    """What a policy brings."""

    value: float  # the promised metric: the discounted sum of rewards per user, from the start states
    headline: float  # the figure that the results page shows of this world
    by_user: Float64Array | None = None  # [n] the discounted sums of new users; None: the value is exact

    def above(self, base: Truth) -> Lift:
        """How much more this is than another policy's, on the same new users."""
        if self.by_user is None or base.by_user is None:
            return Lift(self.value - base.value, 0.0)
        differences = self.by_user - base.by_user
        return Lift(float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences))))


@dataclass(frozen=True, kw_only=True, eq=False)
class World(ABC):
    """A kind of log. A seed gives one log of it, and the users who try a policy learned from that log.

    Args:
        name: by which `by_name` finds it.
        users: in one log.
        gamma: the discount of the promised metric; learners are given the same.
        finite: few contexts, so that tables can be learned.
    """

    name: str
    users: int
    gamma: float = GAMMA
    finite: bool = False

    @abstractmethod
    def mu(self, seed: int) -> Policy:
        """The policy that writes the log."""

    @abstractmethod
    def make_log(self, seed: int) -> LoggedData:
        """The log of this seed."""

    @abstractmethod
    def truth(self, policy: Policy, seed: int) -> Truth:
        """What the policy is worth, exactly or on new users; these are the same for every policy."""

    def optimum(self, seed: int) -> float | None:
        """The promised metric of the best policy, where it is known."""
        return None

    def attainable(self, seed: int) -> float | None:
        """The scale of gains and losses: optimum - mu, where it is known and not zero."""
        best = self.optimum(seed)
        return None if best is None or best - self.mu_value(seed) <= 0 else best - self.mu_value(seed)

    def true_value(self, policy: Policy, seed: int) -> float:
        """The promised metric of a policy; higher is better."""
        return self.truth(policy, seed).value

    def headline(self, policy: Policy, seed: int) -> float:
        """The figure of the results page; higher is better."""
        return self.truth(policy, seed).headline

    def mu_value(self, seed: int) -> float:
        """The promised metric of mu."""
        return self.true_value(self.mu(seed), seed)

    def lift(self, policy: Policy, seed: int) -> Lift:
        """How much better than mu the policy truly is, on the same new users."""
        return self.truth(policy, seed).above(self.truth(self.mu(seed), seed))

    def with_users(self, users: int) -> Self:
        """The same world with logs of another size."""
        return replace(self, users=users)
