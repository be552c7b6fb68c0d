"""A trivial world for learners: every user has a taste, and only the immediate reward matters.

    x_t = taste + small noise          in [-1.2, 1.2]^2, independent of earlier actions
    r_t = level_a + direction_a'x_t + noise

The four actions point in four directions, so the best action depends on the context. One action is better
than the others on average, so that a learner without contexts still has something to find. Users leave at
random, many of them after one decision. With ``masked``, the last action is never allowed, and the others
only sometimes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from shpi.errors import EpisodeError
from shpi.policies import FunctionScorer, Softmax
from shpi.protocols import BoolArray, Float32Array, Float64Array, FloatArray, IntArray, Policy, Step

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

ACTIONS, HORIZON = 4, 8  # number of actions; decisions per user, at most
LEVELS = np.array([0.4, 0.0, 0.0, -0.4])  # [A] mean reward of each action
_ANGLES = np.arange(ACTIONS) * np.pi / 2
DIRECTIONS = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)  # [A, 2]


@dataclass
class Tastes:
    """The world as a batch simulator; user i depends only on (seed, first + i)."""

    masked: bool = False
    noise: float = 0.3
    leaves: float = 0.25  # the probability of leaving after a decision
    name: str = "tastes"
    n_actions: int = ACTIONS
    horizon: int = HORIZON
    context_names: tuple[str, ...] = ("east", "north")
    _draws: dict[str, Any] = field(default_factory=dict, repr=False)
    _time: int = 0
    _ended: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool), repr=False)

    def reset(self, n: int, seed: int, *, first: int = 0) -> FloatArray:
        """Draw all random numbers of n users, and return their first contexts."""
        streams = [np.random.default_rng([seed, user]) for user in range(first, first + n)]
        taste = np.array([rng.uniform(-1, 1, size=2) for rng in streams])
        jitter = np.array([rng.uniform(-0.2, 0.2, size=(self.horizon + 1, 2)) for rng in streams])
        chance = np.array([rng.random((self.horizon, 2)) for rng in streams])
        masks = np.array([rng.random((self.horizon + 1, self.n_actions)) < 0.7 for rng in streams])
        masks[:, :, -1] = False
        masks[:, :, 0] |= ~masks.any(axis=2)
        self._draws = {
            "contexts": (taste[:, None] + jitter).astype(np.float32),  # [n, T + 1, 2]
            "noise": np.array([rng.standard_normal(self.horizon) for rng in streams]),
            "leaves": chance[:, :, 0] < self.leaves,
            "session_end": chance[:, :, 1] < 0.3,
            "masks": masks,  # [n, T + 1, A]
        }
        self._time, self._ended = 0, np.zeros(n, dtype=bool)
        return self._contexts()

    def step(self, actions: IntArray) -> Step:
        """Pay each user's immediate reward; nothing else depends on the actions."""
        if self._time >= self.horizon or self._ended.all():
            raise EpisodeError(expected="a reset", found="a step after the end", where=self.name)
        t, n = self._time, len(self._ended)
        rewards = (
            true_rewards(self._contexts())[np.arange(n), actions] + self.noise * self._draws["noise"][:, t]
        )
        rewards[self._ended] = 0.0
        self._ended = self._ended | self._draws["leaves"][:, t]
        self._time += 1
        return Step(
            self._contexts(), rewards, self._ended.copy(), {"session_end": self._draws["session_end"][:, t]}
        )

    def candidates(self) -> BoolArray | None:
        """The current mask [n, A]; None if the world has no masks."""
        return np.array(self._draws["masks"][:, self._time]) if self.masked else None

    def rollout(self, policy: Policy, n: int, seed: int, *, first: int = 0) -> LoggedData:
        """The log of n users under ``policy``."""
        from shpi.envs.rollout import rollout

        return rollout(self, policy, n, seed, first=first, keep_behaviour=True)

    def log(self, n: int, seed: int) -> LoggedData:
        """The log of a policy that covers every action and is somewhat better than uniform."""
        return self.rollout(Softmax(FunctionScorer(true_rewards, ACTIONS, 2), temperature=0.8), n, seed)

    def fresh(self, n: int, seed: int) -> tuple[Float32Array, BoolArray | None]:
        """Contexts [n, 2] of new users, and their masks [n, A]."""
        contexts = self.reset(n, seed, first=1_000_000)
        return np.asarray(contexts, dtype=np.float32), self.candidates()

    def _contexts(self) -> Float32Array:
        return np.array(self._draws["contexts"][:, self._time], dtype=np.float32)


def true_rewards(contexts: FloatArray) -> Float64Array:
    """E[r | x, a] [n, A]."""
    expected: Float64Array = LEVELS + np.asarray(contexts, dtype=np.float64) @ DIRECTIONS.T
    return expected


def attained(policy: Policy, contexts: FloatArray, candidates: BoolArray | None = None) -> float:
    """Where the expected reward of ``policy`` lies between uniform (0) and the best policy (1)."""
    rewards = true_rewards(contexts)
    mask = np.ones(rewards.shape, dtype=bool) if candidates is None else candidates
    uniform = float((rewards * mask / mask.sum(axis=1, keepdims=True)).sum(axis=1).mean())
    best = float(np.where(mask, rewards, -np.inf).max(axis=1).mean())
    earned = float((policy.action_probs(contexts, candidates) * rewards).sum(axis=1).mean())
    return (earned - uniform) / (best - uniform)
