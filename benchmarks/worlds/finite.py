"""Finite worlds: a decision process whose values are known, the policy that logs, and what the log shows."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from benchmarks.worlds.base import Truth, World
from shpi.data.logged import LoggedData
from shpi.policies import mask_probs, sample_actions
from shpi.protocols import BoolArray, Float32Array, Float64Array, FloatArray, Policy
from shpi.testing.tabular import TabularMDP

LOG_SEED = 77  # keeps the draws of a log apart from those of its world


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One drawn world with its logging policy.

    Args:
        mdp: what happens.
        mu: the logging policy [S, A].
        codes: the contexts of the states [S, d]; no two are alike.
        binary: rewards are 1 with probability R(s, a), and 0 otherwise; else Gaussian around R(s, a).
        lengths: trajectories are cut after a number of decisions between these two.
        last_shown: whether the context after the last decision of those who were cut is in the log.
    """

    mdp: TabularMDP
    mu: Float64Array
    codes: Float32Array
    binary: bool = False
    lengths: tuple[int, int] = (5, 30)
    last_shown: bool = True

    def value(self, table: Float64Array) -> float:
        """The promised metric of a policy table [S, A]."""
        return float(self.mdp.initial @ self.mdp.value(table))

    @property
    def optimum(self) -> float:
        """That of the best policy."""
        return float(self.mdp.initial @ self.mdp.optimal()[0])

    @property
    def worst(self) -> float:
        """That of the worst."""
        return -float(self.mdp.initial @ replace(self.mdp, reward=-self.mdp.reward).optimal()[0])

    def table_of(self, policy: Policy) -> Float64Array:
        """The policy as a table [S, A]."""
        return policy.action_probs(self.codes, self.mdp.allowed)

    def log(self, users: int, seed: int) -> LoggedData:
        """Ragged trajectories, one per user, with exact propensities."""
        rng = np.random.default_rng((LOG_SEED, seed))
        mdp, (shortest, longest) = self.mdp, self.lengths
        limit = rng.integers(shortest, longest + 1, size=users)
        states = np.empty((users, longest + 1), dtype=np.int64)
        actions = np.zeros((users, longest), dtype=np.int64)
        states[:, 0] = sample_actions(np.tile(mdp.initial, (users, 1)), rng.random(users))
        for t in range(longest):
            actions[:, t] = sample_actions(self.mu[states[:, t]], rng.random(users))
            following = mdp.transition[states[:, t], actions[:, t]]
            states[:, t + 1] = sample_actions(following, rng.random(users))
        gone = mdp.terminal[states[:, 1:]]
        leaves = np.where(gone.any(axis=1), gone.argmax(axis=1) + 1, longest + 1)
        counts = np.minimum(limit, leaves)
        taken = np.arange(longest) < counts[:, None]
        x, a = states[:, :-1][taken], actions[taken]
        terminated = leaves <= limit
        shown = terminated | self.last_shown
        last = states[np.arange(users), np.where(shown, counts, counts - 1)]
        return LoggedData.from_arrays(
            contexts=self.codes[x],
            actions=a,
            rewards=self._rewards(mdp.reward[x, a], rng),
            offsets=np.append(0, np.cumsum(counts)),
            propensities=self.mu[x, a],
            n_actions=mdp.n_actions,
            terminated=terminated,
            final_contexts=self.codes[last],
            final_observed=shown,
            candidates=None if mdp.allowed is None else mdp.allowed[x],
            final_candidates=None if mdp.allowed is None else mdp.allowed[last],
        )

    def _rewards(self, expected: Float64Array, rng: np.random.Generator) -> Float64Array:
        if self.binary:
            return (rng.random(len(expected)) < expected).astype(np.float64)
        return expected + self.mdp.noise * rng.standard_normal(len(expected))


@dataclass(frozen=True, eq=False)
class CodedPolicy:
    """A table [S, A] that acts on contexts: each is the code of a state."""

    codes: Float32Array  # [S, d]
    table: Float64Array  # [S, A]

    @property
    def n_actions(self) -> int:
        """A."""
        return int(self.table.shape[1])

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """The row of the nearest code, [n, A]."""
        distances = ((contexts[:, None, :] - self.codes[None]) ** 2).sum(axis=2)
        return mask_probs(self.table[distances.argmin(axis=1)], candidates)


@dataclass(frozen=True, kw_only=True, eq=False)
class FiniteWorld(World):
    """A world that is drawn anew for every seed. Headline: the share of (optimum - mu) that is attained."""

    finite: bool = True

    @abstractmethod
    def draw(self, seed: int) -> Case:
        """The world of a seed; logs of any size have the same."""

    def case(self, seed: int) -> Case:
        """The same, kept for a while."""
        return _kept(self, seed)

    def mu(self, seed: int) -> Policy:
        """As the log has it."""
        return CodedPolicy(self.case(seed).codes, self.case(seed).mu)

    def make_log(self, seed: int) -> LoggedData:
        """The log of the seed."""
        return self.case(seed).log(self.users, seed)

    def truth(self, policy: Policy, seed: int) -> Truth:
        """By linear algebra."""
        case = self.case(seed)
        value, base = case.value(case.table_of(policy)), case.value(case.mu)
        gap = case.optimum - base
        return Truth(value, (value - base) / gap if gap > 1e-9 else float("nan"))

    def optimum(self, seed: int) -> float:
        """By policy iteration."""
        return self.case(seed).optimum


@lru_cache(maxsize=64)
def _kept(world: FiniteWorld, seed: int) -> Case:
    return world.draw(seed)
