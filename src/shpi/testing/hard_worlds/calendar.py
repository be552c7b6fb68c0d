"""Worlds that change by day: a drifting mu, arms switched by day, an effect that vanishes, daily looks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shpi.data.logged import LoggedData
from shpi.testing.hard_worlds.false_propensities import PERIODS, _drifting, periods
from shpi.testing.hard_worlds.people import two_actions, types
from shpi.testing.hard_worlds.world import Calendar, Case, Setting, World

DAYS = 30  # days over which users enter


def _drifting_mu(rng: np.random.Generator, users: int) -> Setting:
    """Right propensities are logged, but contexts do not show the time; rewards of a day share a shock."""
    mu, level = _drifting(rng)
    high = rng.uniform(0.6, 0.75)
    return Setting(
        chain=periods(level, rng.uniform(-0.2, 0.2, size=PERIODS), horizon=4),
        mu=mu,
        pi=np.array([[1 - high, high]]),
        group=np.zeros(PERIODS, dtype=np.int64),
        calendar=Calendar(days=3 * PERIODS, entry_of_state=3 * np.arange(PERIODS), shocks=0.1),
    )


def _switched_by_day(rng: np.random.Generator, users: int) -> Setting:
    """One coin per day for all users: right propensities, but only as many observations as days."""
    chain = types(np.ones(1), np.ones((1, 2)), np.array([[0.0, 1.0]]), 3)
    mu, pi = two_actions(rng)
    calendar = Calendar(days=DAYS, shared_coins=True, shocks=0.3)
    return Setting(chain=chain, mu=mu, pi=pi, group=np.zeros(1, dtype=np.int64), calendar=calendar)


def _turned_effect(rng: np.random.Generator, users: int) -> Setting:
    """The action has an effect in the first two thirds of the log, but not in the last third nor later."""
    effect = np.full(PERIODS, rng.uniform(0.2, 0.4))
    effect[-PERIODS // 3 :] = 0.0
    mu, pi = two_actions(rng)
    group = np.zeros(PERIODS, dtype=np.int64)
    chain = periods(np.ones(PERIODS), effect, horizon=4)
    last = np.where(np.arange(PERIODS) >= PERIODS - PERIODS // 3 - 1, 1.0, 0.0)
    return Setting(
        chain=chain,
        future=replace(chain, initial=last / last.sum()),
        mu=mu[group],
        pi=pi,
        group=group,
        calendar=Calendar(days=3 * PERIODS, entry_of_state=3 * np.arange(PERIODS)),
    )


def _daily_looks(rng: np.random.Generator, users: int) -> Setting:
    chain = types(np.ones(1), np.ones((1, 2)), np.array([[0.0, 1.0]]), 1)
    mu, pi = two_actions(rng)
    return Setting(chain=chain, mu=mu, pi=pi, group=np.zeros(1, dtype=np.int64), calendar=Calendar(days=DAYS))


def looks(case: Case, days: int = DAYS) -> list[LoggedData]:
    """The log as of each of the first ``days`` days: the users who had entered by then."""
    users_by_day = [np.flatnonzero(case.entry < day) for day in range(1, days + 1)]
    return [case.logs.select(users) for users in users_by_day if len(users)]


drifting_mu = World(
    name="drifting mu",
    words="mu moves from one action to the other over the log while rewards rise; its probabilities are "
    "logged and right. All rewards of a day share some luck.",
    build=_drifting_mu,
)
switched_by_day = World(
    name="arms switched by day",
    words="Every day one coin chooses the action for all users, and all rewards of a day share some luck.",
    build=_switched_by_day,
)
turned_effect = World(
    name="turned effect",
    words="The action was good for two thirds of the log, and is not in the last third and from now on.",
    build=_turned_effect,
    impossible="a future that differs from the log: a test of change can only say that it changed",
)
daily_looks = World(
    name="no lift, looked at daily",
    words="Nothing is wrong, but the log grows for 30 days and somebody looks every day: see `looks`.",
    build=_daily_looks,
    users=3_000,
)
