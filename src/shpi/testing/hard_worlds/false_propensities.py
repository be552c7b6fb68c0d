"""Worlds with false propensities: estimated without a confounder, out of date, or overridden."""

from __future__ import annotations

from functools import partial

import numpy as np

from shpi.protocols import Float64Array
from shpi.testing.hard_worlds.chain import Chain, normal_noise
from shpi.testing.hard_worlds.people import two_actions
from shpi.testing.hard_worlds.world import Calendar, Setting, World

PERIODS = 10  # number of periods in a log whose rule changes with time


def _switching(stays: float, reward: Float64Array, bonus: Float64Array, horizon: int) -> Chain:
    """Two hidden states, each kept with probability ``stays``, independent of the actions."""
    move = np.array([[stays, 1 - stays], [1 - stays, stays]])
    return Chain(
        initial=np.array([0.5, 0.5]),
        transition=np.repeat(move[:, None, :], 2, axis=1),
        reward=reward,
        bonus=bonus,
        horizon=horizon,
        gone=np.zeros(2, dtype=bool),
        draw=normal_noise(0.5),
    )


def _hidden_column(rng: np.random.Generator, users: int) -> Setting:
    """A confounder that the log does not contain raises both the rewards and the probability of action 1."""
    effect = float(rng.choice([0.1, 0.2, 0.4]))
    level = np.array([[0.5, 0.5], [1.5, 1.5]])
    chain = _switching(rng.uniform(0.6, 1.0), level, np.array([[0.0, 1.0], [0.0, 1.0]]), horizon=4)
    low = rng.uniform(0.4, 0.6)
    mu = np.array([[1 - (low - effect / 2), low - effect / 2], [1 - (low + effect / 2), low + effect / 2]])
    high = low + rng.uniform(0.15, 0.3)
    return Setting(
        chain=chain,
        mu=mu,
        pi=np.array([[1 - high, high]]),
        group=np.zeros(2, dtype=np.int64),
        propensities="estimated",
    )


def _rule_changes(rng: np.random.Generator, users: int) -> Setting:
    """Action 1 is taken more and more often, and rewards rise with time for another reason."""
    mu, level = _drifting(rng)
    chain = periods(level, np.zeros(PERIODS), horizon=4)
    high = rng.uniform(0.65, 0.8)
    return Setting(
        chain=chain,
        mu=mu,
        pi=np.array([[1 - high, high]]),
        group=np.zeros(PERIODS, dtype=np.int64),
        propensities="estimated",
        calendar=Calendar(days=3 * PERIODS, entry_of_state=3 * np.arange(PERIODS)),
    )


def _drifting(rng: np.random.Generator) -> tuple[Float64Array, Float64Array]:
    """The probabilities of mu by period [P, 2] and the level of rewards [P]; both rise with time."""
    moved = rng.uniform(0.3, 0.6)
    share = 0.5 + moved * np.linspace(-0.5, 0.5, PERIODS)
    level = 1.0 + rng.uniform(0.3, 0.8) * np.linspace(0.0, 1.0, PERIODS)
    return np.stack([1 - share, share], axis=1), level


def periods(level: Float64Array, effect: Float64Array, horizon: int) -> Chain:
    """Users who keep the reward level [P] of their period; ``effect`` [P]: what action 1 adds in it."""
    kinds = len(level)
    return Chain(
        initial=np.full(kinds, 1 / kinds),
        transition=np.repeat(np.eye(kinds)[:, None, :], 2, axis=1),
        reward=np.stack([level, level + effect], axis=1),
        bonus=np.tile([0.0, 1.0], (kinds, 1)),
        horizon=horizon,
        gone=np.zeros(kinds, dtype=bool),
        draw=normal_noise(0.5),
    )


def _overridden(rng: np.random.Generator, users: int, *, shares: tuple[float, float]) -> Setting:
    """The action is overridden with 1 when users are about to buy; the log keeps the old propensities."""
    share = float(rng.choice(shares))
    says, pi = two_actions(rng)
    hot = min(share / float(says[0, 0]), 0.5)  # so that ``share`` of all decisions are changed
    move = np.tile([1 - hot, hot], (2, 1))
    chain = Chain(
        initial=np.array([1 - hot, hot]),
        transition=np.repeat(move[:, None, :], 2, axis=1),
        reward=np.array([[1.0, 1.0], [4.0, 4.0]]),
        bonus=np.array([[0.0, 1.0], [0.0, 1.0]]),
        horizon=4,
        gone=np.zeros(2, dtype=bool),
        draw=normal_noise(0.5),
    )
    mu = np.concatenate([says, [[0.0, 1.0]]])
    return Setting(
        chain=chain, mu=mu, pi=pi, group=np.zeros(2, dtype=np.int64), says=np.concatenate([says, says])
    )


hidden_column = World(
    name="hidden column",
    words="The logging rule and the rewards depend on a column that the log has not; propensities are "
    "estimated. It moves the chance of the action by 0.1, 0.2 or 0.4.",
    build=_hidden_column,
    impossible="hidden confounding: the answer is a bound under sensitivity, not a test",
)
rule_changes = World(
    name="rule changes with time",
    words="The logging rule takes the action ever more often while rewards rise; propensities are estimated.",
    build=_rule_changes,
)
overridden = World(
    name="overridden decisions",
    words="5 or 10 % of the decisions were changed after their probabilities had been logged, where users "
    "were about to buy.",
    build=partial(_overridden, shares=(0.05, 0.10)),
)
rarely_overridden = World(
    name="rarely overridden decisions",
    words="The same with 1 or 2 % of the decisions.",
    build=partial(_overridden, shares=(0.01, 0.02)),
    impossible="too few changed decisions for frequencies to show: the report says how many would have shown",
)
