"""Rewards under way when the log ends: what is dropped is not biased, and what is completed is right."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import shpi
from shpi.advantages import k_step_advantages
from shpi.data._log.futures import keep_prefixes
from shpi.data.logged import LoggedData
from shpi.data.rewards import DiscountedSum, ReturnWithin, SessionsWithin, SumWithin
from shpi.errors import ConfigError, DataError
from shpi.features import Identity
from shpi.testing.tabular import TabularMDP, random_mdp
from shpi.values import LSTD, Complete, LinearValue, StateValues, WithPast, with_past
from shpi.values._lstd.moments import LstdSums
from shpi.values.mature import _thetas

WINDOW, GAMMA, STEPS, USERS = 6, 0.9, 12, 20_000
COMPLETE = Complete(features=Identity(), ridge=0.1)
TABLE = LSTD(features=Identity(), ridge=0.1, lookahead=1)


def world(seed: int) -> TabularMDP:
    """Six states, one of them the end; rewards are mostly positive, so that those who leave bring less."""
    mdp = random_mdp(6, 3, seed, gamma=GAMMA, n_terminal=1, noise=0.3)
    return replace(mdp, reward=np.where(mdp.terminal[:, None], 0.0, mdp.reward + 1.0))


def windowed(mdp: TabularMDP, mu: np.ndarray) -> TabularMDP:
    """The same world, paid with the expected sum of the next `WINDOW` rewards under mu."""
    plain = replace(mdp, gamma=1.0)
    return replace(mdp, reward=plain._backup(plain.values_by_time(mu, WINDOW - 1)[0]))


def with_metric(logs: LoggedData) -> LoggedData:
    assert logs.rewards is not None
    return replace(logs, metrics={"m": logs.rewards})


def cut_at_random(logs: LoggedData, seed: int) -> LoggedData:
    """Each trajectory ends after a random number of decisions; the context after them is known."""
    ends = np.random.default_rng(seed).integers(1, STEPS + 1, logs.n_trajectories)
    return keep_prefixes(logs, logs.steps < ends[logs.trajectory_of_row], logs.ledger)


def advantage_table(logs: LoggedData, mdp: TabularMDP, values: StateValues, k: int) -> np.ndarray:
    """The mean advantage of each state and action, [S, A]; NaN where there are few."""
    advantages = k_step_advantages(logs, values, k=k, gamma=GAMMA)
    cell = (mdp.states_of(logs.contexts) * mdp.n_actions + logs.actions)[advantages.valid]
    counts = np.bincount(cell, minlength=mdp.reward.size)
    sums = np.bincount(cell, advantages.values[advantages.valid], minlength=mdp.reward.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(counts > 100, sums / counts, np.nan).reshape(mdp.reward.shape)


def errors(logs: LoggedData, mdp: TabularMDP, mu: np.ndarray, k: int = 3) -> tuple[float, float]:
    """The mean error of V over the living states in units of its spread, and the slope of A^ on A."""
    truth = windowed(mdp, mu)
    value = TABLE.fit(logs, gamma=GAMMA, seed=0)
    live, states = ~mdp.terminal, mdp.contexts(np.arange(mdp.n_states))
    exact, fitted = truth.value(mu)[live], value(states)[live]
    table = advantage_table(logs, mdp, StateValues.of(value, logs), k)
    ok = np.isfinite(table)
    slope = np.polyfit(truth.k_step_advantage(mu, mu, k)[ok], table[ok], 1)[0]
    return float(np.mean(fitted - exact) / exact.std()), float(slope)


# ---------------------------------------------------------------------- drop and mark


def test_windows_are_closed_by_v_at_the_first_reward_that_has_not_matured() -> None:
    """Dropping gives the same advantages as marking: the bonus V of the first context without a reward."""
    mdp = world(0)
    mu = mdp.random_policy(50)
    logs = with_metric(mdp.log(mu, 200, STEPS, seed=0, ragged=False))
    reward = SumWithin(metric="m", horizon=4)
    dropped, marked = logs.with_rewards(reward), logs.with_rewards(reward, censored="mark")
    observed = marked.reward_observed
    assert observed is not None
    bonus = np.random.default_rng(0).normal(size=mdp.n_states)

    def value(contexts: np.ndarray) -> np.ndarray:
        return bonus[mdp.states_of(contexts)]

    for k in (1, 3, 20):
        of_dropped = k_step_advantages(dropped, StateValues.of(value, dropped), k=k, gamma=GAMMA)
        of_marked = k_step_advantages(marked, StateValues.of(value, marked), k=k, gamma=GAMMA)
        np.testing.assert_allclose(of_dropped.values, of_marked.values[observed], atol=1e-12)
        np.testing.assert_array_equal(of_dropped.valid, of_marked.valid[observed])
        np.testing.assert_array_equal(of_dropped.lengths, of_marked.lengths[observed])
    both = [TABLE.fit(log, gamma=GAMMA, seed=0) for log in (dropped, marked)]
    np.testing.assert_allclose(both[0].theta, both[1].theta, rtol=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_dropping_by_time_alone_is_not_biased(seed: int) -> None:
    mdp = world(seed)
    mu = mdp.random_policy(seed + 50)
    logs = with_metric(mdp.log(mu, USERS, STEPS, seed, ragged=False))
    bias, slope = errors(logs.with_rewards(SumWithin(metric="m", horizon=WINDOW)), mdp, mu)
    assert abs(bias) < 0.1
    assert slope == pytest.approx(1.0, abs=0.06)


# ---------------------------------------------------------------------- completion, in steps


@pytest.mark.parametrize("seed", [0, 1, 3])
@pytest.mark.parametrize("ragged", [False, True])
def test_completed_rewards_give_the_true_value_and_advantages(seed: int, ragged: bool) -> None:
    mdp = world(seed)
    mu = mdp.random_policy(seed + 50)
    logs = with_metric(mdp.log(mu, USERS, STEPS, seed, ragged=False))
    logs = cut_at_random(logs, seed) if ragged else logs
    reward = SumWithin(metric="m", horizon=WINDOW)
    completed = logs.with_rewards(reward, censored=COMPLETE)
    assert len(completed) == len(logs)
    bias, slope = errors(completed, mdp, mu)
    assert abs(bias) < 0.1
    assert slope == pytest.approx(1.0, abs=0.06)
    if (
        ragged
    ):  # nobody knows until when those who left would have been logged: dropping keeps too many of them
        lost, _ = errors(logs.with_rewards(reward), mdp, mu)
        assert lost < -0.5


def test_the_value_of_the_steps_that_are_left_is_that_of_dynamic_programming() -> None:
    mdp = world(2)
    mu = mdp.random_policy(52)
    logs = mdp.log(mu, 20_000, STEPS, seed=1, ragged=False)
    features = Identity().fit(logs.contexts)
    thetas = _thetas(LstdSums.of(logs, features, gamma=1.0), 1e-6, 5)
    exact = replace(mdp, gamma=1.0).values_by_time(mu, 5)[::-1]  # by the number of steps left
    fitted = np.array([LinearValue(features=features, theta=theta)(np.eye(6)) for theta in thetas])
    np.testing.assert_allclose(fitted[:, ~mdp.terminal], exact[:, ~mdp.terminal], atol=0.1)


def test_in_a_world_without_chance_the_completed_rewards_are_the_future_ones() -> None:
    """Three states in a ring, rewards 1, 2, 4: what is cut off is known exactly."""
    ring = TabularMDP(
        transition=np.roll(np.eye(3), 1, axis=1)[:, None, :],
        reward=np.array([[1.0], [2.0], [4.0]]),
        gamma=0.9,
        initial=np.full(3, 1 / 3),
        terminal=np.zeros(3, dtype=bool),
    )
    logs = with_metric(ring.log(np.ones((3, 1)), 300, 9, seed=0, ragged=False))
    exact = Complete(features=Identity(), ridge=1e-9)
    completed = logs.with_rewards(SumWithin(metric="m", horizon=5, per=1), censored=exact)
    paid = np.array([1.0, 2.0, 4.0])
    states = ring.states_of(logs.contexts)
    np.testing.assert_allclose(
        completed.rewards, sum(paid[(states + j) % 3] for j in range(5)) / 5, rtol=1e-5
    )
    assert completed.reward_observed is None
    np.testing.assert_array_equal(completed.immediate, logs.rewards)
    assert "were completed" in completed.ledger.notes[-1]
    forever = logs.with_rewards(DiscountedSum(metric="m", gamma=0.5), censored=exact)
    series = sum(0.5**j * paid[(states + j) % 3] for j in range(60))
    np.testing.assert_allclose(
        forever.rewards, series, rtol=0.02
    )  # a closed window may lack 1 % of the weight
    np.testing.assert_allclose(np.asarray(forever.rewards)[logs.steps > 6], series[logs.steps > 6], rtol=1e-5)
    some = logs.with_rewards(DiscountedSum(metric="m", gamma=0.5, horizon=4), censored=exact)
    np.testing.assert_allclose(
        some.rewards, sum(0.5**j * paid[(states + j) % 3] for j in range(4)), rtol=1e-5
    )


def test_those_who_left_are_taken_as_they_are_and_hidden_ends_are_closed() -> None:
    mdp = world(4)
    logs = with_metric(mdp.log(mdp.random_policy(54), 300, STEPS, seed=0))  # half of the last contexts hidden
    completed = logs.with_rewards(SumWithin(metric="m", horizon=4), censored=COMPLETE)
    hidden = ~(logs.final_observed | logs.terminated)
    assert completed.ledger.balanced()
    assert len(completed) == len(logs) - hidden.sum()
    assert (completed.final_observed | completed.terminated).all()
    assert "next context is not in the log" in completed.ledger.drops[-1].reason
    gone = np.repeat(completed.terminated, np.diff(completed.offsets))
    whole = logs.with_rewards(SumWithin(metric="m", horizon=4), censored="mark")
    before = np.repeat(logs.terminated, np.diff(logs.offsets))
    np.testing.assert_allclose(np.asarray(completed.rewards)[gone], np.asarray(whole.rewards)[before])


def test_scaling_the_metric_scales_the_completed_rewards() -> None:
    mdp = world(5)
    logs = with_metric(mdp.log(mdp.random_policy(55), 400, STEPS, seed=0))
    larger = replace(logs, metrics={"m": 1e6 * logs.metrics["m"]})
    for reward in (SumWithin(metric="m", horizon=4), DiscountedSum(metric="m", gamma=0.8)):
        plain, scaled = (log.with_rewards(reward, censored=Complete()) for log in (logs, larger))
        np.testing.assert_allclose(scaled.rewards, 1e6 * np.asarray(plain.rewards), rtol=1e-6, atol=1)


# ---------------------------------------------------------------------- completion, on a clock

END, DAYS = 20.0, 7.0


def on_a_clock(mdp: TabularMDP, mu: np.ndarray, users: int, seed: int) -> LoggedData:
    """Users join at any time; how long they stay away depends on what they were shown."""
    logs = with_metric(mdp.log(mu, users, 60, seed, ragged=False, session_end=0.4))
    rng = np.random.default_rng([seed, 1])
    pauses = np.random.default_rng(7).uniform(0.3, 4.0, size=mdp.reward.shape)
    first, before = logs.offsets[:-1], np.maximum(np.arange(len(logs)) - 1, 0)
    starts = np.isin(np.arange(len(logs)), logs.session_offsets)
    pause = pauses[mdp.states_of(logs.contexts)[before], logs.actions[before]]
    gaps = np.where(starts, rng.exponential(1.0, len(logs)) * pause, 0.02)
    gaps[first] = rng.uniform(-10.0, END, users)
    times = np.cumsum(gaps)
    return replace(logs, times=times - np.repeat(times[first] - gaps[first], np.diff(logs.offsets)))


def until(logs: LoggedData, end: float) -> LoggedData:
    """The log as it was at some time: nobody has seen the contexts after it."""
    cut = keep_prefixes(logs, logs.times <= end, logs.ledger)
    return replace(cut, final_observed=np.zeros(cut.n_trajectories, dtype=bool))


@pytest.mark.parametrize(
    "reward",
    [
        SumWithin(metric="m", horizon=DAYS),
        SessionsWithin(horizon=DAYS),
        ReturnWithin(horizon=3.0, pays="decision"),
        DiscountedSum(metric="m", gamma=0.8, per=1),
    ],
)
def test_on_a_clock_completed_rewards_have_the_mean_of_what_came_later(reward: Any) -> None:
    mdp = world(3)
    mu = mdp.random_policy(53)
    future = until(on_a_clock(mdp, mu, 4000, 0), END + 25)
    logs = until(future, END)
    truth = future.with_rewards(reward, censored="mark", log_end=END + 25).rewards
    assert truth is not None
    truth = truth[future.times <= END]
    completed = logs.with_rewards(reward, censored=COMPLETE, log_end=END)
    marked = logs.with_rewards(reward, censored="mark", log_end=END)
    assert completed.rewards is not None
    assert marked.reward_observed is not None
    gone = np.repeat(logs.terminated, np.diff(logs.offsets))
    np.testing.assert_array_equal(completed.rewards[gone], np.asarray(marked.rewards)[gone])
    closed = marked.reward_observed
    np.testing.assert_array_equal(completed.rewards[closed], np.asarray(marked.rewards)[closed])
    open_ = ~closed & ~gone
    assert open_.sum() > 1000
    error = (completed.rewards - truth)[open_]
    users = np.bincount(logs.trajectory_of_row[open_], error)
    noise = np.sqrt(np.sum(users**2)) / open_.sum()
    assert abs(error.mean()) < 4 * noise  # 2 for the future, 2 for what was learned
    assert abs(error.mean()) < 0.06 * truth[open_].std()
    assert np.corrcoef(completed.rewards[open_], truth[open_])[0, 1] > 0.6
    # What was seen so far alone is far too low.
    assert (np.asarray(marked.rewards) - truth)[open_].mean() < -4 * noise


def test_a_return_that_was_seen_stays_one() -> None:
    mdp = world(1)
    logs = until(on_a_clock(mdp, mdp.random_policy(51), 500, 0), END)
    reward = ReturnWithin(horizon=3.0)
    completed = logs.with_rewards(reward, censored=Complete(), log_end=END)
    marked = logs.with_rewards(reward, censored="mark", log_end=END)
    assert completed.rewards is not None
    assert (completed.rewards[np.asarray(marked.rewards) == 1] == 1).all()
    assert completed.rewards.min() >= 0
    assert completed.rewards.max() <= 1
    every = logs.with_rewards(ReturnWithin(horizon=3.0, pays="decision"), censored=Complete(), log_end=END)
    last = logs.session_offsets[1:] - 1
    np.testing.assert_array_equal(completed.rewards[last], np.asarray(every.rewards)[last])
    assert not np.delete(completed.rewards, last).any()


# ---------------------------------------------------------------------- the past


def test_the_past_that_a_value_sees_holds_nothing_of_the_future() -> None:
    """Yesterday's 6-day sum tells today's reward: V(x, h) would take away what the action brought."""
    mdp = world(3)
    mu = mdp.random_policy(53)
    logs = with_metric(mdp.log(mu, USERS, STEPS, 3, ragged=False))
    derived = logs.with_rewards(SumWithin(metric="m", horizon=WINDOW))
    wide = with_past(derived)
    inner = derived.steps > 0
    np.testing.assert_allclose(
        wide.contexts[inner, -2], derived.metrics["m"][np.flatnonzero(inner) - 1], rtol=1e-6
    )
    truth = windowed(mdp, mu).k_step_advantage(mu, mu, 3)

    def slope(log: LoggedData) -> float:
        value = WithPast(model=LSTD(ridge=3.0, lookahead=1)).fit(log, gamma=GAMMA, seed=0)
        table = advantage_table(log, mdp, StateValues.of(value, log), 3)
        ok = np.isfinite(table)
        return float(np.polyfit(truth[ok], table[ok], 1)[0])

    assert slope(derived) == pytest.approx(1.0, abs=0.08)
    assert slope(replace(derived, immediate=None)) < 0.7  # as if the reward were known at once


# ---------------------------------------------------------------------- mistakes


@dataclass(frozen=True)
class Own:
    """A reward of somebody else's."""

    def look_ahead(self, timeline: Any) -> tuple[np.ndarray, np.ndarray]:
        observed = np.arange(len(timeline.times)) % 4 < 2
        return np.zeros(len(observed)), observed


def test_mistakes_are_named() -> None:
    mdp = world(0)
    logs = with_metric(mdp.log(mdp.random_policy(0), 50, 4, seed=0, ragged=False))
    with pytest.raises(ConfigError, match="found Own"):
        logs.with_rewards(Own(), censored=COMPLETE)
    with pytest.raises(ConfigError, match="name the time column"):
        logs.with_rewards(ReturnWithin(horizon=2), censored=COMPLETE)
    with pytest.raises(DataError, match="shorter horizon"):
        until(on_a_clock(mdp, mdp.random_policy(0), 50, 0), END).with_rewards(
            SumWithin(metric="m", horizon=100), censored=COMPLETE
        )
    single = LoggedData.from_arrays(
        contexts=np.zeros((2, 1)), actions=[0, 1], offsets=[0, 1, 2], metrics={"m": [1, 2]}
    )
    with pytest.raises(DataError, match="next context is known"):
        single.with_rewards(SumWithin(metric="m", horizon=2), censored=COMPLETE)
    assert shpi.Complete is Complete
