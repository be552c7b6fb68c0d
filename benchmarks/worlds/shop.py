"""The storefront as a benchmark's world; its values are exact."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.worlds.base import Truth, World
from shpi.data.logged import LoggedData
from shpi.envs import tabular
from shpi.envs.storefront import Storefront
from shpi.policies import TabularPolicy
from shpi.protocols import Float64Array, Policy


@dataclass(frozen=True, kw_only=True, eq=False)
class Shop(World):
    """The storefront under epsilon-greedy session RL (1: uniform). Headline: conversions a month."""

    epsilon: float
    finite: bool = True

    @cached_property
    def shop(self) -> Storefront:
        """The simulator."""
        return Storefront()

    @cached_property
    def table(self) -> Float64Array:
        """mu, [S, A]."""
        return self.epsilon * self.shop.uniform() + (1 - self.epsilon) * self.shop.session_rl()

    def mu(self, seed: int) -> Policy:
        """The same for every seed."""
        return TabularPolicy(self.table)

    def make_log(self, seed: int) -> LoggedData:
        """The log of the seed."""
        return self.shop.rollout(self.mu(seed), self.users, seed)

    def truth(self, policy: Policy, seed: int) -> Truth:
        """By linear algebra."""
        table = policy.action_probs(self.shop.contexts.astype(np.float32))
        return Truth(self._discounted(table), self.shop.exact_value(table))

    def optimum(self, seed: int) -> float:
        """By policy iteration."""
        return self._discounted(tabular.optimal(self._moves, self.shop.expected_reward))

    @cached_property
    def _moves(self) -> Float64Array:
        """P times gamma, [S, A, S']; the users who are gone have left it."""
        moves = self.gamma * self.shop.transition
        moves[:, :, -1] = 0.0
        return moves

    def _discounted(self, table: Float64Array) -> float:
        return float(self.shop.start @ tabular.evaluate(self._moves, self.shop.expected_reward, table))
