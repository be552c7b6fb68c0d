"""Wide contexts and many actions, as recommenders have: 4 to 32 tastes and 3 to 100 actions, drawn by seed.

    reward          w_a'x + s + noise
    tastes x        drift by themselves; no action changes them
    satisfaction s  follows what was shown: s' = DECAY s + PULL c_a + noise

Tastes and satisfaction are the context. What an action does to later rewards is a number of its own, so the
best policy is known: argmax_a w_a'x + later c_a, with later = gamma PULL / (1 - gamma DECAY).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from benchmarks.worlds.base import Truth, World
from shpi.data.logged import LoggedData
from shpi.policies import mask_probs, sample_actions
from shpi.policies.heads import one_hot, softmax
from shpi.protocols import BoolArray, Float32Array, Float64Array, FloatArray, Policy

WIDTHS, ACTIONS = (4, 8, 16, 32), (3, 10, 30, 100)
DRIFT, DECAY, PULL = 0.8, 0.8, 0.3  # of tastes, of satisfaction, and what an action does to it
MOOD = 0.3  # standard deviation of the noise in satisfaction
SHORTEST, LONGEST = 5, 40  # decisions of a user in the log
NEW_USERS, NEW_DECISIONS = 1_000, 60  # who try a policy, and for how long
LOG_SEED, NEW_SEED = 78, 79  # keep the draws of a log and of new users apart from those of their world


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearPolicy:
    """Probabilities from a linear function of the context: softmax, or the largest."""

    weights: Float64Array  # [A, d + 1]
    bias: Float64Array  # [A]
    greedy: bool = False

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.weights)

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """[n, A]."""
        scores = np.asarray(contexts, dtype=np.float64) @ self.weights.T + self.bias
        table = one_hot(scores.argmax(axis=1), self.n_actions) if self.greedy else softmax(scores)
        return mask_probs(table, candidates)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tastes:
    """One drawn world."""

    worth: Float64Array  # [A, d] w_a
    pleasure: Float64Array  # [A] c_a
    mu: LinearPolicy
    noise: float

    def best(self, gamma: float) -> LinearPolicy:
        """The best policy."""
        weights = np.column_stack([self.worth, np.zeros(len(self.worth))])
        later = gamma * PULL / (1 - gamma * DECAY)
        return LinearPolicy(weights=weights, bias=later * self.pleasure, greedy=True)

    def run(
        self, policy: Policy, users: int, decisions: int, rng: np.random.Generator
    ) -> tuple[Float32Array, Float64Array, Float64Array, Float64Array]:
        """Contexts [n, T + 1, d + 1], actions, propensities and rewards [n, T] of new users."""
        width = self.worth.shape[1]
        x, s = rng.standard_normal((users, width)), rng.standard_normal(users)
        contexts = np.empty((users, decisions + 1, width + 1), dtype=np.float32)
        actions, chances, rewards = np.zeros((3, users, decisions))
        for t in range(decisions + 1):
            contexts[:, t] = np.column_stack([x, s])
            if t == decisions:
                break
            probs = policy.action_probs(contexts[:, t])
            chosen = sample_actions(probs, rng.random(users))
            actions[:, t], chances[:, t] = chosen, probs[np.arange(users), chosen]
            expected = np.einsum("nd,nd->n", x, self.worth[chosen]) + s
            rewards[:, t] = expected + self.noise * rng.standard_normal(users)
            x = DRIFT * x + np.sqrt(1 - DRIFT**2) * rng.standard_normal(x.shape)
            s = DECAY * s + PULL * self.pleasure[chosen] + MOOD * rng.standard_normal(users)
        return contexts, actions, chances, rewards


@dataclass(frozen=True, kw_only=True, eq=False)
class WideWorld(World):
    """Headline: the share of (optimum - mu) that is attained."""

    def case(self, seed: int) -> Tastes:
        """The world of a seed; logs of any size have the same."""
        return _drawn(seed)

    def mu(self, seed: int) -> Policy:
        """A softmax of the context."""
        return _drawn(seed).mu

    def make_log(self, seed: int) -> LoggedData:
        """Ragged trajectories, one per user, with exact propensities; nobody leaves for good."""
        rng, case = np.random.default_rng((LOG_SEED, seed)), _drawn(seed)
        contexts, actions, chances, rewards = case.run(case.mu, self.users, LONGEST, rng)
        counts = rng.integers(SHORTEST, LONGEST + 1, size=self.users)
        taken = np.arange(LONGEST) < counts[:, None]
        return LoggedData.from_arrays(
            contexts=contexts[:, :-1][taken],
            actions=actions[taken].astype(np.int64),
            rewards=rewards[taken],
            propensities=chances[taken],
            offsets=np.append(0, np.cumsum(counts)),
            n_actions=len(case.worth),
            terminated=np.zeros(self.users, dtype=bool),
            final_contexts=contexts[np.arange(self.users), counts],
            final_observed=np.ones(self.users, dtype=bool),
        )

    def truth(self, policy: Policy, seed: int) -> Truth:
        """New users try it, the same for every policy."""
        sums = self._sums(policy, seed)
        base, best = _bounds(self, seed)
        return Truth(float(sums.mean()), (float(sums.mean()) - base) / (best - base), sums)

    def optimum(self, seed: int) -> float:
        """On the same new users."""
        return _bounds(self, seed)[1]

    def _sums(self, policy: Policy, seed: int) -> Float64Array:
        rng = np.random.default_rng((NEW_SEED, seed))
        rewards = _drawn(seed).run(policy, NEW_USERS, NEW_DECISIONS, rng)[3]
        sums: Float64Array = rewards @ self.gamma ** np.arange(NEW_DECISIONS)
        return sums


@lru_cache(maxsize=64)
def _drawn(seed: int) -> Tastes:
    rng = np.random.default_rng((ord("w"), seed))
    width, actions = int(rng.choice(WIDTHS)), int(rng.choice(ACTIONS))
    worth = rng.standard_normal((actions, width)) / np.sqrt(width)
    leaning = rng.uniform(0.3, 1.5) * rng.standard_normal((actions, width + 1)) / np.sqrt(width)
    return Tastes(
        worth=worth,
        pleasure=rng.standard_normal(actions),
        mu=LinearPolicy(weights=leaning, bias=rng.uniform(0.0, 1.0) * rng.standard_normal(actions)),
        noise=float(rng.uniform(0.5, 2.0)),
    )


@lru_cache(maxsize=64)
def _bounds(world: WideWorld, seed: int) -> tuple[float, float]:
    """What mu and the best policy bring."""
    case = _drawn(seed)
    policies = (case.mu, case.best(world.gamma))
    mu, best = (float(world._sums(policy, seed).mean()) for policy in policies)
    return mu, best
