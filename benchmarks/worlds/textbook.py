"""Four kinds of textbook worlds that played no part in building the learner: see `benchmarks.bench_textbook`.

chain  upstream is slow, downstream is easy; the reward is at the source, a small one at the mouth
grid   a square with a goal, after which one starts anywhere, and a pit; one move in five goes astray
trap   a tempting action pays now and leads to bored states, which pay little and are hard to leave
wide   15 to 39 states and up to 7 actions, each of which leads nearly anywhere

Users leave for good in half of the worlds. mu is uniform, a Dirichlet draw, or narrow: 70 % one random action
of each state. Contexts are one-hot or numbers; the last one is known in half of the logs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.worlds.families import with_leaving
from benchmarks.worlds.finite import Case, FiniteWorld
from shpi.policies.heads import one_hot
from shpi.protocols import Float32Array, Float64Array
from shpi.testing.tabular import TabularMDP

NARROW = 0.7  # share of one action in a narrow mu
GAMMAS = (0.9, 0.95, 0.99)

Parts = tuple[Float64Array, Float64Array, Float64Array]  # transition [S, A, S], reward [S, A], initial [S]


@dataclass(frozen=True, kw_only=True, eq=False)
class TextbookWorld(FiniteWorld):
    """Worlds of one kind; each has a discount of its own, in ``case(seed).mdp.gamma``."""

    kind: str

    def draw(self, seed: int) -> Case:
        """The world of a seed."""
        rng = np.random.default_rng((sum(map(ord, self.kind)), seed))
        transition, reward, initial = KINDS[self.kind](rng)
        binary = self.kind in ("chain", "trap") and rng.random() < 0.5
        mdp = TabularMDP(
            transition=transition,
            reward=reward,
            gamma=float(rng.choice(GAMMAS)),
            initial=initial,
            terminal=np.zeros(len(initial), dtype=bool),
            noise=0.0 if binary else float(rng.uniform(0.2, 1.0)),
        )
        if rng.random() < 0.5:
            mdp = with_leaving(mdp, rng, (0.01, 0.1))
        return Case(
            mdp=mdp,
            mu=_logging(rng, mdp.n_states, mdp.n_actions),
            codes=_codes(rng, mdp.n_states),
            binary=binary,
            lengths=(5, int(rng.integers(20, 60))),
            last_shown=bool(rng.random() < 0.5),
        )


def _chain(rng: np.random.Generator) -> Parts:
    states, slip = int(rng.integers(6, 12)), rng.uniform(0.2, 0.6)
    transition, reward = np.zeros((states, 2, states)), np.zeros((states, 2))
    for s in range(states):
        transition[s, 0, max(s - 1, 0)] = 1.0
        for following, chance in ((s + 1, 1 - slip), (s - 1, 0.2 * slip), (s, 0.8 * slip)):
            transition[s, 1, np.clip(following, 0, states - 1)] += chance
    reward[0, 0], reward[-1, 1] = 0.05, 1.0
    return transition, reward, np.repeat([0.5, 0.0], [2, states - 2])


def _grid(rng: np.random.Generator) -> Parts:
    side = int(rng.integers(3, 6))
    states = side * side
    goal, pit = rng.choice(states, 2, replace=False)
    transition = np.zeros((states, 4, states))
    for s in range(states):
        i, j = divmod(s, side)
        for action, (down, right) in enumerate(((0, 1), (1, 0), (0, -1), (-1, 0))):
            for chance, (di, dj) in ((0.8, (down, right)), (0.1, (right, down)), (0.1, (-right, -down))):
                row, column = np.clip((i + di, j + dj), 0, side - 1)
                transition[s, action, row * side + column] += chance
    reward = transition[:, :, goal] - transition[:, :, pit] - 0.05
    transition[goal] = 1 / states
    return transition, reward, np.full(states, 1 / states)


def _trap(rng: np.random.Generator) -> Parts:
    states, actions = int(rng.integers(6, 12)), 3
    lively = states // 2  # states; the others are bored
    transition, reward = np.zeros((states, actions, states)), np.full((states, actions), 0.05)
    stays = np.where(np.arange(states)[:, None] < lively, (0.3, 0.9, 0.9), (0.1, 0.4, 0.4))  # [S, A]
    for s, a in np.ndindex(states, actions):
        transition[s, a, :lively] = stays[s, a] * rng.dirichlet(np.ones(lively))
        transition[s, a, lively:] = (1 - stays[s, a]) * rng.dirichlet(np.ones(states - lively))
    reward[:lively, 1:] = rng.uniform(0.2, 0.5, size=(lively, actions - 1))
    reward[:lively, 0], reward[lively:, 0] = 0.6, 0.1
    return transition, reward, np.full(states, 1 / states)


def _wide(rng: np.random.Generator) -> Parts:
    states, actions = int(rng.integers(15, 40)), int(rng.integers(2, 8))
    transition = rng.dirichlet(np.full(states, 0.3), size=(states, actions))
    reward = 0.3 * rng.normal(size=(states, actions)) + rng.normal(size=(states, 1))
    return transition, reward, rng.dirichlet(np.ones(states))


def _logging(rng: np.random.Generator, states: int, actions: int) -> Float64Array:
    """Mu [S, A]: uniform, drawn, or narrow."""
    kind = int(rng.integers(3))
    if kind == 0:
        return np.full((states, actions), 1 / actions)
    if kind == 1:
        return rng.dirichlet(np.ones(actions), size=states)
    return (1 - NARROW) / actions + NARROW * one_hot(rng.integers(actions, size=states), actions)


def _codes(rng: np.random.Generator, states: int) -> Float32Array:
    """One-hot contexts, or a number in random order."""
    if rng.random() < 0.5:
        return np.eye(states, dtype=np.float32)
    return rng.permutation(states)[:, None].astype(np.float32)


KINDS: dict[str, Callable[[np.random.Generator], Parts]] = {
    "chain": _chain,
    "grid": _grid,
    "trap": _trap,
    "wide": _wide,
}
