"""Random worlds: random chains with random policies, another one for every seed."""

from __future__ import annotations

import numpy as np

from shpi.testing.hard_worlds.chain import Chain, normal_noise
from shpi.testing.hard_worlds.world import Setting, World


def _random(rng: np.random.Generator, users: int) -> Setting:
    """4 to 8 hidden states, of which contexts show 2 to 4 groups; some actions make users leave."""
    size, actions, groups = int(rng.integers(4, 9)), int(rng.integers(2, 5)), int(rng.integers(2, 5))
    transition = np.zeros((size + 1, actions, size + 1))
    transition[:size, :, :size] = rng.dirichlet(np.full(size, 0.3), size=(size, actions))
    leaves = rng.uniform(0.0, 0.15) * rng.random((size, actions))
    transition[:size] *= (1 - leaves)[:, :, None]
    transition[:size, :, size] = leaves
    transition[size, :, size] = 1.0
    reward, bonus = np.zeros((size + 1, actions)), np.zeros((size + 1, actions))
    reward[:size] = 1.0 + 0.5 * rng.standard_normal((size, actions))
    favourite = int(rng.integers(actions))
    bonus[:size, favourite] = 1.0
    chain = Chain(
        initial=np.append(rng.dirichlet(np.ones(size)), 0.0),
        transition=transition,
        reward=reward,
        bonus=bonus,
        horizon=int(rng.integers(3, 16)),
        gone=np.arange(size + 1) == size,
        draw=normal_noise(rng.uniform(0.2, 2.0)),
    )
    group = np.append(rng.integers(groups, size=size), 0)
    mu = 0.9 * rng.dirichlet(np.ones(actions), size=groups) + 0.1 / actions
    lean = rng.uniform(0.05, 0.5)
    pi = (1 - lean) * mu + lean * np.eye(actions)[favourite]
    return Setting(chain=chain, mu=mu[group], pi=pi, group=group)


random_worlds = World(
    name="random worlds",
    words="A random chain of 4 to 8 hidden states, 2 to 4 actions, 3 to 15 decisions for every seed; users "
    "leave at random, and the log says so.",
    build=_random,
)
