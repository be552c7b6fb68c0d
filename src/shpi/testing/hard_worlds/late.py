"""Worlds in which the harm comes later than the gain: bait that pays now and drives users away.

    calm  --bait-->  1  -->  2  --> ... -->  d  --(probability `leaves`)-->  gone,  else calm

Bait pays ``gain`` at once; a user who took it makes d more decisions before the harm shows. Actions in
between do not matter, and contexts do not show how long ago the bait was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from shpi.protocols import Float64Array
from shpi.testing.hard_worlds.chain import Chain, normal_noise, with_types
from shpi.testing.hard_worlds.world import Calendar, Setting, World

BAIT = 1  # index of bait among the actions plain, bait, other
LEVELS = np.array([0.8, 1.2])  # mean reward per decision of two user types, which contexts show


def bait(delay: int, leaves: float, horizon: int) -> Chain:
    """A chain with two user types, in which bait does harm after ``delay`` more decisions."""
    size = delay + 2  # calm, 1 .. delay, gone
    gone = size - 1
    transition = np.zeros((size, 3, size))
    transition[0, :, 0] = 1.0
    transition[0, BAIT] = np.eye(size)[1]
    for s in range(1, delay):
        transition[s, :, s + 1] = 1.0
    transition[delay, :, gone], transition[delay, :, 0] = leaves, 1 - leaves
    transition[gone, :, gone] = 1.0
    bonus = np.zeros((size, 3))
    bonus[:gone, BAIT] = 1.0
    alive = np.arange(size) < gone
    chain = with_types(
        Chain(
            initial=np.eye(size)[0],
            transition=transition,
            reward=np.zeros((size, 3)),
            bonus=bonus,
            horizon=horizon,
            gone=~alive,
            draw=normal_noise(0.5),
            metrics={
                "complaint": np.repeat(np.where(np.arange(size) == delay, 0.5, 0.02)[:, None], 3, axis=1)
            },
        ),
        np.array([0.5, 0.5]),
    )
    levels = np.repeat(LEVELS, size)[:, None] * np.tile(alive, 2)[:, None]
    return replace(chain, reward=np.repeat(levels, 3, axis=1))


def shares(bait_share: float, rng: np.random.Generator) -> Float64Array:
    """The probabilities of plain, bait and other for both types [2, 3]."""
    rest = rng.uniform(0.4, 0.6, size=2)
    return np.stack(
        [[(1 - bait_share) * share, bait_share, (1 - bait_share) * (1 - share)] for share in rest]
    )


def _setting(
    rng: np.random.Generator, chain: Chain, mu: Float64Array, pi: Float64Array, **options: Any
) -> Setting:
    group = np.repeat(np.arange(2), len(chain.initial) // 2)
    return Setting(chain=chain, mu=mu[group], pi=pi, group=group, **options)


def _clickbait(rng: np.random.Generator, users: int) -> Setting:
    chain = bait(int(rng.integers(2, 6)), 0.5, horizon=10)
    mu = shares(rng.uniform(0.25, 0.35), rng)
    return _setting(rng, chain, mu, _leaning(mu, rng.uniform(0.1, 0.2)))


def _late_harm(rng: np.random.Generator, users: int) -> Setting:
    chain = bait(int(rng.integers(10, 31)), rng.uniform(0.6, 1.0), horizon=45)
    mu = shares(rng.uniform(0.02, 0.06), rng)
    return _setting(rng, chain, mu, _leaning(mu, rng.uniform(0.12, 0.3)))


def _unmarked(rng: np.random.Generator, users: int) -> Setting:
    chain = bait(int(rng.integers(1, 3)), 0.5, horizon=10)
    mu = shares(rng.uniform(0.25, 0.35), rng)
    calendar = Calendar(days=30, end=32)
    return _setting(
        rng, chain, mu, _leaning(mu, rng.uniform(0.1, 0.2)), marked=False, calendar=calendar, churn_after="3d"
    )


def _leaning(mu: Float64Array, share: float) -> Float64Array:
    """The policy that takes bait with probability ``share``, and otherwise acts as mu [2, 3]."""
    leaning: Float64Array = (1 - share) * mu + share * np.eye(3)[BAIT]
    return leaning


clickbait = World(
    name="clickbait",
    words="Bait pays at once; half of those who took it leave 2 to 5 decisions later.",
    build=_clickbait,
)
late_harm = World(
    name="late harm",
    words="The same after 10 to 30 decisions, and the policy takes bait several times as often as mu.",
    build=_late_harm,
)
unmarked_churn = World(
    name="unmarked churn",
    words="Bait drives users away after 1 or 2 decisions, and the log does not say who left: it has no more "
    "rows of them, as of users who entered shortly before it stops.",
    build=_unmarked,
)
