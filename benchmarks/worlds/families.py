"""Four families of random finite worlds: 4 to 9 states, 2 to 5 actions.

A   one-hot contexts, Dirichlet mu, users who leave for good
B   contexts are numbers or points in space, and nobody knows what followed the last decision
C   rare binary rewards, forbidden actions, a narrow mu around a mediocre policy
D   every action may lead to every state, mu takes every action now and then; in half of the worlds users
    leave, in the others nobody knows what followed the last decision
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from benchmarks.worlds.finite import Case, FiniteWorld
from shpi.policies import mask_probs
from shpi.policies.heads import one_hot
from shpi.protocols import BoolArray, Float32Array, Float64Array
from shpi.testing.tabular import TabularMDP

Family = Literal["a", "b", "c", "d"]
LEAST_GAP = 0.1  # of (optimum - worst) must be left to gain, or the world is drawn again
RARE, FREQUENT = (0.0, 0.02), (0.1, 0.4)  # ranges of reward probabilities in family C
MEDIOCRE = 9  # random policies, of which the middle one is mu's favourite in family C


@dataclass(frozen=True, kw_only=True, eq=False)
class FamilyWorld(FiniteWorld):
    """Worlds of one family."""

    family: Family

    def draw(self, seed: int) -> Case:
        """A world in which there is something to gain."""
        rng = np.random.default_rng((ord(self.family), seed))
        make = {"a": _one_hot, "b": _embedded, "c": _sparse, "d": _dense}[self.family]
        while True:
            case = make(rng, self.gamma)
            if case.optimum - case.value(case.mu) > LEAST_GAP * (case.optimum - case.worst) > 0:
                return case


def _one_hot(rng: np.random.Generator, gamma: float) -> Case:
    states, actions = sizes(rng)
    mdp = with_leaving(garnet(rng, states, actions, gamma), rng, (0.02, 0.12))
    return Case(mdp=mdp, mu=_dirichlet(rng, mdp), codes=np.eye(states + 1, dtype=np.float32))


def _embedded(rng: np.random.Generator, gamma: float) -> Case:
    states, actions = sizes(rng)
    mdp = garnet(rng, states, actions, gamma)
    return Case(mdp=mdp, mu=_dirichlet(rng, mdp), codes=_points(rng, states), last_shown=False)


def _sparse(rng: np.random.Generator, gamma: float) -> Case:
    states, actions = sizes(rng)
    frequent = rng.random((states, actions)) < 0.2
    chances = np.where(frequent, rng.uniform(*FREQUENT, frequent.shape), rng.uniform(*RARE, frequent.shape))
    allowed: BoolArray = rng.random((states, actions)) > 1 / 3
    allowed[np.arange(states), rng.integers(actions, size=states)] = True
    mdp = replace(garnet(rng, states, actions, gamma), reward=chances, allowed=allowed, noise=0.0)
    mdp = with_leaving(mdp, rng, (0.02, 0.08))
    spread = mask_probs(np.ones(mdp.reward.shape), mdp.allowed)
    epsilon = rng.uniform(0.15, 0.35)
    favourites = [_favourite(rng, mdp) for _ in range(MEDIOCRE)]
    favourites.sort(key=lambda table: float(mdp.initial @ mdp.value(table)))
    mu = epsilon * spread + (1 - epsilon) * favourites[MEDIOCRE // 2]
    return Case(mdp=mdp, mu=mu, codes=np.eye(mdp.n_states, dtype=np.float32), binary=True)


def _dense(rng: np.random.Generator, gamma: float) -> Case:
    states, actions = sizes(rng)
    transition = rng.dirichlet(np.ones(states), size=(states, actions))
    mdp, leaving = replace(garnet(rng, states, actions, gamma), transition=transition), rng.random() < 0.5
    if leaving:
        mdp = with_leaving(mdp, rng, (0.02, 0.12))
    mu = rng.dirichlet(np.full(actions, 2.0), size=mdp.n_states)
    return Case(mdp=mdp, mu=mu, codes=np.eye(mdp.n_states, dtype=np.float32), last_shown=leaving)


# ---------------------------------------------------------------------- parts


def sizes(rng: np.random.Generator) -> tuple[int, int]:
    """States and actions."""
    return int(rng.integers(4, 10)), int(rng.integers(2, 6))


def garnet(rng: np.random.Generator, states: int, actions: int, gamma: float) -> TabularMDP:
    """Each action leads to two or three states; rewards are Gaussian, with noise as large as they are."""
    branching = int(rng.integers(2, 4))
    targets = rng.random((states, actions, states)).argsort(axis=2)[:, :, :branching]
    transition = np.zeros((states, actions, states))
    weights = rng.dirichlet(np.ones(branching), size=(states, actions))
    np.put_along_axis(transition, targets, weights, axis=2)
    return TabularMDP(
        transition=transition,
        reward=rng.normal(size=(states, actions)),
        gamma=gamma,
        initial=rng.dirichlet(np.ones(states)),
        terminal=np.zeros(states, dtype=bool),
        noise=float(rng.uniform(0.5, 1.5)),
    )


def with_leaving(mdp: TabularMDP, rng: np.random.Generator, chance: tuple[float, float]) -> TabularMDP:
    """The same with one more state, "gone", to which every decision leads with some chance."""
    states, actions = mdp.reward.shape
    leaves = rng.uniform(*chance, size=(states, actions, 1))
    moves = np.concatenate([(1 - leaves) * mdp.transition, leaves], axis=2)
    stays = np.zeros((1, actions, states + 1))
    stays[:, :, -1] = 1.0
    return replace(
        mdp,
        transition=np.concatenate([moves, stays]),
        reward=np.vstack([mdp.reward, np.zeros((1, actions))]),
        initial=np.append(mdp.initial, 0.0),
        terminal=np.append(mdp.terminal, True),
        allowed=None if mdp.allowed is None else np.vstack([mdp.allowed, np.ones((1, actions), dtype=bool)]),
    )


def _dirichlet(rng: np.random.Generator, mdp: TabularMDP) -> Float64Array:
    return rng.dirichlet(np.ones(mdp.n_actions), size=mdp.n_states)


def _favourite(rng: np.random.Generator, mdp: TabularMDP) -> Float64Array:
    """A random deterministic policy of allowed actions."""
    scores = rng.random(mdp.reward.shape)
    if mdp.allowed is not None:
        scores = np.where(mdp.allowed, scores, -1.0)
    return one_hot(scores.argmax(axis=1), mdp.n_actions)


def _points(rng: np.random.Generator, states: int) -> Float32Array:
    """The number of the state, or a random point in two or three dimensions."""
    width = int(rng.integers(1, 4))
    if width == 1:
        return rng.permutation(states)[:, None].astype(np.float32)
    return rng.normal(size=(states, width)).astype(np.float32)
