"""Logs with nothing to prove: rewards that do not depend on actions, and worlds where mu is optimal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal
from zlib import crc32

import numpy as np

from benchmarks.worlds.base import Truth, World
from benchmarks.worlds.families import garnet, sizes, with_leaving
from benchmarks.worlds.finite import Case, FiniteWorld
from shpi.data.logged import LoggedData
from shpi.policies import sample_actions
from shpi.policies.heads import one_hot
from shpi.protocols import BoolArray, Float64Array, FloatArray, Int64Array, Policy
from shpi.testing.tabular import TabularMDP

Rewards = Literal["state", "moved", "rare", "persistent"]
ACTIONS, WIDTH = 4, 3
NARROW = 0.2  # epsilon of a narrow mu
RARE = 0.02  # the chance of a rare reward
SPREAD = 2.0  # of the users' own means, in units of the noise


@dataclass(frozen=True, kw_only=True, eq=False)
class Indifferent(World):
    """Rewards to which no action makes a difference, so every policy is worth what mu is: given as 0.

    Args:
        longest: decisions of a trajectory, at most; at least half as many.
        narrow: mu is epsilon-greedy in a function of the context, otherwise uniform.
        rewards: "state": they follow contexts that run by themselves; "moved": pure chance, while actions
            move the contexts; "rare": 1 in fifty decisions; "persistent": each user has a mean of its own,
            which past rewards in the contexts reveal in part.
        hidden: mu is epsilon-greedy in what no context shows, so that no clone of it is any good.
    """

    longest: int
    narrow: bool
    rewards: Rewards = "state"
    hidden: bool = False

    def mu(self, seed: int) -> Policy:
        """Drawn anew for every seed."""
        return _Leaning(_rng(self, 1, seed).normal(size=(WIDTH, ACTIONS)), self.narrow)

    def truth(self, policy: Policy, seed: int) -> Truth:
        """All policies are alike."""
        return Truth(0.0, 0.0)

    def optimum(self, seed: int) -> float:
        """That of mu."""
        return 0.0

    def make_log(self, seed: int) -> LoggedData:
        """Half of the users leave for good at the end of their trajectory, the others are cut off."""
        rng, mu, n = _rng(self, 2, seed), self.mu(seed), self.users
        means = SPREAD * rng.standard_normal(n)
        slope, pushes = rng.normal(size=WIDTH), rng.normal(size=(ACTIONS, WIDTH))
        x, earned = rng.standard_normal((n, WIDTH)), np.zeros(n)
        contexts, actions, rewards, propensities = [], [], [], []
        for t in range(self.longest + 1):
            if self.rewards == "persistent":
                x[:, 0] = earned / max(t, 1)
            contexts.append(x.astype(np.float32))
            if t == self.longest:
                break
            probs = mu.action_probs(contexts[-1])
            if self.hidden:
                probs = NARROW * probs + (1 - NARROW) * one_hot(rng.integers(ACTIONS, size=n), ACTIONS)
            chosen = sample_actions(probs, rng.random(n))
            reward = self._reward(x @ slope, means, rng)
            actions.append(chosen)
            propensities.append(probs[np.arange(n), chosen])
            rewards.append(reward)
            earned += reward
            x = 0.8 * x + 0.6 * rng.standard_normal((n, WIDTH))
            if self.rewards == "moved":
                x = x + 0.5 * pushes[chosen]
        counts = rng.integers((self.longest + 1) // 2, self.longest + 1, size=n)
        taken = np.arange(self.longest) < counts[:, None]
        by_user = np.stack(contexts, axis=1)  # [n, T + 1, d]
        return LoggedData.from_arrays(
            contexts=by_user[:, :-1][taken],
            actions=np.stack(actions, axis=1)[taken],
            rewards=np.stack(rewards, axis=1)[taken],
            propensities=np.stack(propensities, axis=1)[taken],
            offsets=np.append(0, np.cumsum(counts)),
            n_actions=ACTIONS,
            terminated=rng.random(n) < 0.5,
            final_contexts=by_user[np.arange(n), counts],
        )

    def _reward(self, level: Float64Array, means: Float64Array, rng: np.random.Generator) -> Float64Array:
        if self.rewards == "rare":
            return (rng.random(len(level)) < RARE).astype(np.float64)
        noise = rng.standard_normal(len(level))
        mean: dict[str, Float64Array | float] = {"state": level, "moved": 0.0, "persistent": means}
        return noise + mean[self.rewards]


@dataclass(frozen=True, eq=False)
class _Leaning:
    """Uniform, or epsilon-greedy in a linear function of the context."""

    slopes: Float64Array  # [d, A]
    narrow: bool

    @property
    def n_actions(self) -> int:
        """A."""
        return ACTIONS

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """[n, A]."""
        even = np.full((len(contexts), ACTIONS), 1.0 / ACTIONS)
        if not self.narrow:
            return even
        favourite = (np.asarray(contexts, dtype=np.float64) @ self.slopes).argmax(axis=1)
        return NARROW * even + (1 - NARROW) * one_hot(favourite, ACTIONS)


@dataclass(frozen=True, kw_only=True, eq=False)
class OptimalMu(FiniteWorld):
    """Worlds in which mu takes nothing but optimal actions, at random; the other actions are worse.

    Args:
        alike: the optimal actions of a state are copies of each other. Otherwise they lead elsewhere and pay
            otherwise, but are worth the same in the long run.
    """

    alike: bool

    def draw(self, seed: int) -> Case:
        """A world with one more action: in each state a second optimal one, wherever it is put."""
        rng = _rng(self, 3, seed)
        states, actions = sizes(rng)
        mdp = with_leaving(garnet(rng, states, actions, self.gamma), rng, (0.02, 0.12))
        values, table = mdp.optimal()
        best = table.argmax(axis=1)
        moves, pays = _second(mdp, best, values, rng, self.alike)
        wider = replace(
            mdp,
            transition=np.concatenate([mdp.transition, moves[:, None]], axis=1),
            reward=np.concatenate([mdp.reward, pays[:, None]], axis=1),
        )
        mu = np.zeros(wider.reward.shape)
        share = rng.uniform(0.2, 0.8, size=len(mu))
        mu[np.arange(len(mu)), best] = share
        mu[:, -1] = 1 - share
        order = rng.random(mu.shape).argsort(axis=1)  # in each state the actions get other numbers
        rows = np.arange(len(mu))[:, None]
        shuffled = replace(wider, transition=wider.transition[rows, order], reward=wider.reward[rows, order])
        return Case(mdp=shuffled, mu=mu[rows, order], codes=np.eye(states + 1, dtype=np.float32))

    def attainable(self, seed: int) -> float:
        """What there is to lose: mu - worst."""
        case = self.case(seed)
        return case.value(case.mu) - case.worst


def _second(
    mdp: TabularMDP, best: Int64Array, values: Float64Array, rng: np.random.Generator, alike: bool
) -> tuple[Float64Array, Float64Array]:
    """Where a second optimal action of each state leads [S, S], and what it pays [S]."""
    states = np.arange(mdp.n_states)
    if alike:
        return mdp.transition[states, best], mdp.reward[states, best]
    moves = mdp.transition[states, rng.integers(mdp.n_actions, size=mdp.n_states)]
    pays = np.where(mdp.terminal, 0.0, values - mdp.gamma * moves @ np.where(mdp.terminal, 0.0, values))
    return moves, pays


def _rng(world: World, purpose: int, seed: int) -> np.random.Generator:
    """Draws of its own for every kind: two kinds have nothing in common at the same seed."""
    return np.random.default_rng((crc32(world.name.encode()), purpose, seed))


def _kind(name: str, users: int, longest: int, narrow: bool, rewards: Rewards = "state") -> Indifferent:
    return Indifferent(name=f"null-{name}", users=users, longest=longest, narrow=narrow, rewards=rewards)


FEW, MANY, SHORT, LONG = 60, 1_000, 5, 60
NULL_WORLDS: tuple[World, ...] = (
    *(
        _kind(f"{size}-{span}-{width}", users, longest, width == "narrow")
        for size, users in (("few", FEW), ("many", MANY))
        for span, longest in (("short", SHORT), ("long", LONG))
        for width in ("uniform", "narrow")
    ),
    _kind("moved", 300, 20, narrow=False, rewards="moved"),
    _kind("rare-few", 100, 30, narrow=False, rewards="rare"),
    _kind("rare-many", MANY, 20, narrow=True, rewards="rare"),
    _kind("persistent-few", FEW, LONG, narrow=False, rewards="persistent"),
    _kind("persistent-many", 600, 20, narrow=True, rewards="persistent"),
    *(
        Indifferent(name=f"null-hidden-{size}", users=users, longest=20, narrow=False, hidden=True)
        for size, users in (("few", FEW), ("many", MANY))
    ),
    OptimalMu(name="null-optimal-copies", users=200, alike=True),
    OptimalMu(name="null-optimal-few", users=FEW, alike=False),
    OptimalMu(name="null-optimal-many", users=MANY, alike=False),
)
