"""Worlds in which users differ: in how long they stay, how much they bring, and what the log shows of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shpi.protocols import Float64Array
from shpi.testing.hard_worlds.chain import Chain, Draw, normal_noise
from shpi.testing.hard_worlds.world import Setting, World

SPENDERS, SPENT = 0.01, 100.0  # share of big spenders among users; their reward, 1 for other users


def types(
    shares: Float64Array, reward: Float64Array, bonus: Float64Array, horizon: int, draw: Draw | None = None
) -> Chain:
    """A chain of K permanent user types; rewards depend on type and action [K, A]."""
    kinds, actions = reward.shape
    return Chain(
        initial=shares,
        transition=np.repeat(np.eye(kinds)[:, None, :], actions, axis=1),
        reward=reward,
        bonus=bonus,
        horizon=horizon,
        gone=np.zeros(kinds, dtype=bool),
        draw=normal_noise(0.5) if draw is None else draw,
    )


def two_actions(
    rng: np.random.Generator, groups: int = 1, far: float = 0.5
) -> tuple[Float64Array, Float64Array]:
    """The probabilities of mu, and of a pi that takes action 1 more often, by group [G, 2]."""
    low = rng.uniform(0.3, 0.5, size=groups)
    high = low + (0.95 - low) * rng.uniform(0.2, far, size=groups)
    return np.stack([1 - low, low], axis=1), np.stack([1 - high, high], axis=1)


def _heavy_and_light(rng: np.random.Generator, users: int) -> Setting:
    """Heavy users decide 20 times, light ones 3 to 5 times; the action is bad only for light users."""
    light, states = int(rng.integers(3, 6)), 20
    heavy_share = rng.uniform(0.2, 0.4)
    size = light + 2  # heavy; light after 0 .. light - 1 decisions; gone
    transition = np.zeros((size, 2, size))
    transition[0, :, 0] = 1.0
    for s in range(1, size - 1):
        transition[s, :, s + 1] = 1.0
    transition[-1, :, -1] = 1.0
    reward, bonus = np.zeros((size, 2)), np.zeros((size, 2))
    reward[0], reward[1:-1] = 1.0, [1.0, 0.4]
    bonus[0, 1] = 1.0
    chain = Chain(
        initial=np.concatenate([[heavy_share, 1 - heavy_share], np.zeros(size - 2)]),
        transition=transition,
        reward=reward,
        bonus=bonus,
        horizon=states,
        gone=np.arange(size) == size - 1,
        draw=normal_noise(0.3),
    )
    mu, pi = two_actions(rng, far=0.3)
    group = np.zeros(size, dtype=np.int64)
    return Setting(
        chain=chain, mu=mu[group], pi=pi, group=group, marked=False, options={"truncated": "complete"}
    )


def _bots(rng: np.random.Generator, users: int) -> Setting:
    """Bots decide 100 times and react to nothing; people leave soon, and the policy changes their rewards."""
    share, leaves = rng.uniform(0.005, 0.015), rng.uniform(0.3, 0.5)
    transition = np.zeros((3, 2, 3))  # a bot, a person, gone
    transition[0, :, 0] = transition[2, :, 2] = 1.0
    transition[1, :, 1:] = [1 - leaves, leaves]
    chain = Chain(
        initial=np.array([share, 1 - share, 0.0]),
        transition=transition,
        reward=np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]),
        bonus=np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]),
        horizon=100,
        gone=np.arange(3) == 2,
        draw=normal_noise(0.5),
    )
    mu, pi = two_actions(rng, far=0.3)
    group = np.zeros(3, dtype=np.int64)
    return Setting(chain=chain, mu=mu[group], pi=pi, group=group)


def _big_spenders(rng: np.random.Generator, users: int) -> Setting:
    """One user in a hundred brings a hundred times as much, and brings less under the action."""
    loss = rng.uniform(0.2, 0.6)
    reward = np.array([[1.0, 1.0], [SPENT, (1 - loss) * SPENT]])
    chain = types(np.array([1 - SPENDERS, SPENDERS]), reward, np.array([[0.0, 1.0], [0.0, 0.0]]), horizon=4)
    mu, pi = two_actions(rng)
    group = np.zeros(2, dtype=np.int64)
    return Setting(chain=chain, mu=mu[group], pi=pi, group=group)


def _user_types(rng: np.random.Generator, users: int) -> Setting:
    """Four user types in two visible pairs: the types of a pair look alike but react differently."""
    likes = rng.uniform(-0.5, 0.5, size=4)
    level = rng.uniform(0.5, 2.0, size=4)
    chain = types(
        rng.dirichlet(np.full(4, 5.0)),
        np.stack([level, level + likes], axis=1),
        np.stack([np.zeros(4), np.ones(4)], axis=1),
        horizon=5,
    )
    group = np.array([0, 0, 1, 1])
    mu, pi = two_actions(rng, groups=2)
    return Setting(chain=chain, mu=mu[group], pi=pi, group=group)


def _small_log(rng: np.random.Generator, users: int) -> Setting:
    chain = types(np.array([0.5, 0.5]), np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([[0, 1.0], [0, 1.0]]), 3)
    mu, pi = two_actions(rng, groups=2)
    return Setting(chain=replace(chain, draw=normal_noise(1.0)), mu=mu, pi=pi, group=np.arange(2))


heavy_and_light = World(
    name="heavy and light users",
    words="Heavy users decide 20 times, light ones 3 to 5 times, whatever is shown to them; the log does not "
    "say that they are done. The action is good for heavy users and bad for light ones.",
    build=_heavy_and_light,
)
bots = World(
    name="bots among users",
    words="Up to 1.5 % of the users are bots, which decide 100 times, whatever is shown; people leave after "
    "2 or 3 decisions. What a policy would do to the bots can hardly be known.",
    build=_bots,
)
big_spenders = World(
    name="big spenders lost",
    words="One user in a hundred brings a hundred times as much as others, and less under the policy; all "
    "others bring a little more.",
    build=_big_spenders,
    users=4_000,
)
user_types = World(
    name="user types",
    words="Four types of users of which contexts show two; each likes or dislikes the action.",
    build=_user_types,
)
small_log = World(
    name="small log",
    words="A hundred users, three decisions each.",
    build=_small_log,
    users=100,
    better=0.15,
)
