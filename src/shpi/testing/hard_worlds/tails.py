"""Worlds in which few users dominate: rare disasters, heavy tails, rare rewards, a rarely tried action."""

from __future__ import annotations

import numpy as np

from shpi.protocols import Float64Array, Int64Array
from shpi.testing.hard_worlds.chain import Chain, Draw
from shpi.testing.hard_worlds.people import two_actions, types
from shpi.testing.hard_worlds.world import Setting, World

DISASTER = 200.0  # loss in a disaster; an ordinary decision brings about 1


def _rare_disaster(rng: np.random.Generator, users: int) -> Setting:
    """Action 1 costs ``DISASTER``, so rarely that 3 to 8 disasters are expected in a log of this size."""
    mu, pi = two_actions(rng)
    horizon = 3
    chance = rng.uniform(3.0, 8.0) / (users * horizon * float(mu[0, 1]))
    chain = types(
        np.ones(1),
        np.array([[1.0, 1.0 - chance * DISASTER]]),
        np.array([[0.0, 1.0]]),
        horizon,
        draw=_with_disasters(chance),
    )
    return _plain(chain, mu, pi)


def _with_disasters(chance: float) -> Draw:
    def draw(
        rng: np.random.Generator, mean: Float64Array, states: Int64Array, actions: Int64Array
    ) -> Float64Array:
        ordinary = mean + chance * DISASTER * actions + 0.3 * rng.standard_normal(mean.shape)
        struck = (actions == 1) & (rng.random(mean.shape) < chance)
        return np.where(struck, ordinary - DISASTER, ordinary)

    return draw


def _heavy_tails(rng: np.random.Generator, users: int) -> Setting:
    """Rewards are log-normal, with a standard deviation of 6 to 25 times the mean."""
    mu, pi = _far_apart(rng)
    spread = rng.uniform(1.9, 2.54)

    def draw(
        rng: np.random.Generator, mean: Float64Array, states: Int64Array, actions: Int64Array
    ) -> Float64Array:
        factor: Float64Array = np.exp(spread * rng.standard_normal(mean.shape) - spread**2 / 2)
        return mean * factor

    return _plain(types(np.ones(1), np.ones((1, 2)), np.array([[0.0, 1.0]]), 3, draw=draw), mu, pi)


def _conversions(
    rng: np.random.Generator, mean: Float64Array, states: Int64Array, actions: Int64Array
) -> Float64Array:
    return (rng.random(mean.shape) < mean).astype(np.float64)


def _rare_rewards(rng: np.random.Generator, users: int) -> Setting:
    """One conversion in a hundred to two hundred decisions."""
    mu, pi = _far_apart(rng)
    rate = rng.uniform(0.005, 0.01)
    return _plain(
        types(np.ones(1), np.full((1, 2), rate), np.array([[0.0, rate]]), 3, draw=_conversions), mu, pi
    )


def _rare_action(rng: np.random.Generator, users: int) -> Setting:
    """The log has a handful of conversions after the action that the policy favours, often none."""
    rate = rng.uniform(0.01, 0.03)
    chance = min(rng.uniform(0.5, 5.0) / (users * rate), 0.05)  # expect 0.5 to 5 conversions with it
    mu = np.array([[1 - chance, chance]])
    high = rng.uniform(0.1, 0.4)
    chain = types(np.ones(1), np.full((1, 2), rate), np.array([[0.0, rate]]), 1, draw=_conversions)
    return _plain(chain, mu, np.array([[1 - high, high]]))


def _far_apart(rng: np.random.Generator) -> tuple[Float64Array, Float64Array]:
    """The probabilities of mu, and of a pi that takes action 1 at least twice as often [1, 2]."""
    low, high = rng.uniform(0.2, 0.3), rng.uniform(0.6, 0.8)
    return np.array([[1 - low, low]]), np.array([[1 - high, high]])


def _plain(chain: Chain, mu: Float64Array, pi: Float64Array) -> Setting:
    return Setting(chain=chain, mu=mu, pi=pi, group=np.zeros(1, dtype=np.int64))


rare_disaster = World(
    name="rare disaster",
    words="The action brings a little more, and once in thousands of decisions costs what 200 decisions "
    "bring; 3 to 8 of them are expected in a log.",
    build=_rare_disaster,
)
heavy_tails = World(
    name="heavy tails",
    words="Log-normal rewards with a standard deviation of 6 to 25 means.",
    build=_heavy_tails,
    better=0.5,
)
rare_rewards = World(
    name="rare rewards",
    words="A conversion in 100 to 200 decisions.",
    build=_rare_rewards,
    better=0.5,
)
rare_action = World(
    name="rarely tried action",
    words="The policy leans on an action that mu takes so rarely that half a conversion to five are "
    "expected with it in the log.",
    build=_rare_action,
    users=4_000,
    better=0.5,
)
