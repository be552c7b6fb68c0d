"""The judge of policies against linear algebra: the lift, its error, and what must not change it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import DataError
from shpi.learners._shpi.judge import FOLLOWED, PROMISED, Judge
from shpi.learners._shpi.shapes import few_contexts
from shpi.testing.tabular import TabularMDP, random_mdp

GAMMA = 0.9


def judge_of(logs: LoggedData, gamma: float) -> Judge:
    """The judge that the learner would ask."""
    return Judge.of(logs, table=few_contexts(logs), gamma=gamma, seed=0)


def true_gains(mdp: TabularMDP, pi: np.ndarray, mu: np.ndarray, followed: float) -> np.ndarray:
    """D(x), where pi is followed with probability 1 - 1/followed per step and mu after."""
    live = ~mdp.terminal
    steps = np.einsum("sa,sat->st", pi, mdp.transition) * live[:, None]
    value = mdp.value(mu)
    once = np.sum(pi * mdp.reward, axis=1) * live + GAMMA * steps @ value - value
    gains: np.ndarray = np.linalg.solve(np.eye(len(once)) - GAMMA * (1 - 1 / followed) * steps, once)
    return gains


def true_lift(mdp: TabularMDP, pi: np.ndarray, mu: np.ndarray) -> float:
    """p_0' D."""
    return float(mdp.initial @ true_gains(mdp, pi, mu, FOLLOWED))


def ratios(mdp: TabularMDP, logs: LoggedData, pi: np.ndarray) -> np.ndarray:
    assert logs.propensities is not None
    rho: np.ndarray = pi[mdp.states_of(logs.contexts), logs.actions] / logs.propensities
    return rho


def test_the_closed_form_is_v_pi_minus_v_mu_but_for_the_killing() -> None:
    mdp = random_mdp(6, 3, seed=0, gamma=GAMMA)
    mu, pi = mdp.random_policy(1, concentration=3.0), mdp.random_policy(2)
    plain = float(mdp.initial @ (mdp.value(pi) - mdp.value(mu)))
    assert true_lift(mdp, mu, mu) == pytest.approx(0.0, abs=1e-12)
    assert 0.3 * abs(plain) < abs(true_lift(mdp, pi, mu)) < abs(plain)
    assert np.sign(true_lift(mdp, pi, mu)) == np.sign(plain)


@pytest.mark.parametrize("realised", [False, True])
@pytest.mark.parametrize(
    ("seed", "options", "ragged"),
    [
        (0, {}, False),
        (1, {}, True),
        (2, {"n_terminal": 1}, False),
        (3, {"n_terminal": 2}, True),
        (4, {"masked": True, "noise": 1.0}, False),
        (5, {"encoding": "index"}, True),
    ],
)
def test_the_lift_is_the_exact_one(
    seed: int, options: dict[str, object], ragged: bool, realised: bool
) -> None:
    mdp = random_mdp(6, 3, seed=seed, gamma=GAMMA, **options)  # type: ignore[arg-type]
    mu, pi = mdp.random_policy(seed + 10, concentration=3.0), mdp.random_policy(seed + 20, concentration=3.0)
    logs = mdp.log(mu, 4000, 20, seed=seed, ragged=ragged)
    judge = replace(judge_of(logs, GAMMA), realised=realised)
    found = judge.lift(ratios(mdp, logs, pi))
    truth = true_lift(mdp, pi, mu)
    assert abs(found.estimate - truth) < 3.5 * found.error
    assert found.error < 0.6 * abs(truth)  # so that the line above can fail


def test_the_error_of_the_lift_vanishes_with_users() -> None:
    mdp = random_mdp(5, 3, seed=7, gamma=GAMMA)
    mu, pi = mdp.random_policy(1, concentration=3.0), mdp.optimal()[1]
    logs = mdp.log(mu, 30_000, 15, seed=0, ragged=False)
    found = judge_of(logs, GAMMA).lift(ratios(mdp, logs, pi))
    assert found.estimate == pytest.approx(true_lift(mdp, pi, mu), rel=0.03)


def test_mu_itself_has_no_lift_and_no_influence() -> None:
    mdp = random_mdp(6, 3, seed=0, gamma=GAMMA, noise=0.5)
    mu, pi = mdp.random_policy(1, concentration=3.0), mdp.random_policy(2, concentration=3.0)
    logs = mdp.log(mu, 500, 20, seed=0)
    judge = judge_of(logs, GAMMA)
    one, other = judge.lift(np.ones(len(logs))), judge.lift(ratios(mdp, logs, pi))
    assert abs(one.estimate) < 0.02 * other.error  # what is left is the ridge penalty
    assert one.error < 0.02 * other.error


def test_the_lift_of_mu_is_zero_with_features_that_are_not_cells() -> None:
    logs, rng = noisy(400), np.random.default_rng(9)
    judge = judge_of(logs, GAMMA)
    assert few_contexts(logs) is None
    assert len(judge.maps) == 2
    one = judge.lift(np.ones(len(logs)))
    other = judge.lift(np.exp(0.3 * rng.standard_normal(len(logs))))
    assert abs(one.estimate) < 0.1 * other.error
    assert one.error < 0.1 * other.error


def noisy(users: int, seed: int = 0) -> LoggedData:
    """Action 1 is worth 0.5 more than action 0; contexts are drawn anew in every step."""
    rng, steps = np.random.default_rng(seed), 8
    n = users * steps
    actions = rng.integers(0, 2, n)
    return LoggedData.from_arrays(
        contexts=rng.normal(size=(n, 2)), actions=actions, rewards=0.5 * actions + rng.standard_normal(n),
        propensities=np.full(n, 0.5), offsets=np.arange(0, n + 1, steps), n_actions=2,
        final_contexts=rng.normal(size=(users, 2)), final_observed=np.ones(users, dtype=bool),
    )  # fmt: skip


def test_a_bandit_s_lift_with_features_that_are_not_cells() -> None:
    """Always action 1 earns 0.25 more in every step that it is followed."""
    logs = noisy(3000)
    found = judge_of(logs, GAMMA).lift(np.where(logs.actions == 1, 2.0, 0.0))
    truth = 0.25 / (1 - GAMMA * (1 - 1 / FOLLOWED))
    assert found.estimate == pytest.approx(truth, abs=3.5 * found.error)
    assert found.estimate == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize("realised", [False, True])
def test_the_standard_error_is_the_spread_over_logs(realised: bool) -> None:
    mdp = random_mdp(6, 3, seed=3, gamma=GAMMA, noise=0.5)
    mu, pi = mdp.random_policy(1, concentration=3.0), mdp.random_policy(2, concentration=3.0)
    lifts, errors = [], []
    for seed in range(60):
        logs = mdp.log(mu, 200, 15, seed=seed, ragged=False)
        judge = replace(judge_of(logs, GAMMA), realised=realised)
        found = judge.lift(ratios(mdp, logs, pi))
        lifts.append(found.estimate)
        errors.append(found.error)
    fixed = np.mean(errors) / np.sqrt(2)  # pi is not learned, so nothing is counted twice
    assert fixed == pytest.approx(np.std(lifts, ddof=1), rel=0.3)
    truth, mean_error = true_lift(mdp, pi, mu), np.std(lifts, ddof=1) / np.sqrt(60)
    assert np.mean(lifts) == pytest.approx(truth, abs=3 * mean_error + 0.02 * abs(truth))


@pytest.mark.parametrize("factor", [1e-9, 7.0, 1e12])
def test_the_scale_of_rewards_scales_lifts(factor: float) -> None:
    mdp = random_mdp(6, 3, seed=0, gamma=GAMMA, noise=0.5)
    logs = mdp.log(mdp.random_policy(1, concentration=3.0), 300, 20, seed=0)
    assert logs.rewards is not None
    rho = ratios(mdp, logs, mdp.random_policy(2))
    one = judge_of(logs, GAMMA).lift(rho)
    other = judge_of(logs.with_rewards(factor * logs.rewards), GAMMA).lift(rho)
    assert abs(one.estimate) > 0.1
    assert other.estimate == pytest.approx(factor * one.estimate, rel=1e-4)
    assert other.error == pytest.approx(factor * one.error, rel=1e-4)


def test_a_constant_reward_more_for_every_decision_changes_nothing() -> None:
    mdp = random_mdp(6, 3, seed=0, gamma=GAMMA, noise=0.5)
    logs = mdp.log(mdp.random_policy(1, concentration=3.0), 300, 20, seed=0)
    assert logs.rewards is not None
    rho = ratios(mdp, logs, mdp.random_policy(2, concentration=3.0))
    one = judge_of(logs, GAMMA).lift(rho)
    other = judge_of(logs.with_rewards(5.0 + logs.rewards), GAMMA).lift(rho)
    assert other.estimate == pytest.approx(one.estimate, rel=1e-3)


def test_the_order_of_users_does_not_matter() -> None:
    mdp = random_mdp(6, 3, seed=1, gamma=GAMMA, noise=0.5)
    logs = mdp.log(mdp.random_policy(1, concentration=3.0), 300, 20, seed=0)
    pi = mdp.random_policy(2)
    order = np.random.default_rng(0).permutation(logs.n_trajectories)
    shuffled = logs.select(order)
    one = judge_of(logs, GAMMA).lift(ratios(mdp, logs, pi))
    other = judge_of(shuffled, GAMMA).lift(ratios(mdp, shuffled, pi))
    assert other.estimate == pytest.approx(one.estimate, rel=1e-4)
    assert other.error == pytest.approx(one.error, rel=1e-4)
    np.testing.assert_allclose(np.sort(other.parts[0]), np.sort(one.parts[0]), atol=1e-4 * one.error)


def test_influences_sum_to_nothing() -> None:
    mdp = random_mdp(6, 3, seed=1, gamma=GAMMA, noise=0.5)
    logs = mdp.log(mdp.random_policy(1, concentration=3.0), 300, 20, seed=0)
    found = judge_of(logs, GAMMA).lift(ratios(mdp, logs, mdp.random_policy(2)))
    assert abs(found.parts.sum()) < 0.05 * found.error


def test_the_gradient_is_the_derivative_of_the_lift() -> None:
    mdp = random_mdp(6, 3, seed=1, gamma=GAMMA)
    logs = mdp.log(mdp.random_policy(1, concentration=3.0), 1000, 20, seed=0)
    judge = judge_of(logs, GAMMA)
    towards = ratios(mdp, logs, mdp.random_policy(2, concentration=3.0)) - 1
    step = 1e-2
    slope = (judge.lift(1 + step * towards).estimate - judge.lift(1 - step * towards).estimate) / (2 * step)
    assert abs(slope) > 0.05
    assert float(judge.gradient() @ towards) == pytest.approx(slope, rel=0.04)  # no control variate there


def test_the_value_is_that_of_mu() -> None:
    mdp = random_mdp(6, 3, seed=1, gamma=GAMMA)
    mu, pi = mdp.random_policy(1, concentration=3.0), mdp.random_policy(2, concentration=3.0)
    logs = mdp.log(mu, 5000, 20, seed=0)
    judge = judge_of(logs, GAMMA)
    value = judge.value()(mdp.contexts(np.arange(6)))
    np.testing.assert_allclose(value, mdp.value(mu), atol=0.1)
    states = mdp.states_of(logs.contexts)
    np.testing.assert_allclose(judge.values(None, (0, 1)).rows, mdp.value(mu)[states], atol=0.1)
    under_pi = judge.values(ratios(mdp, logs, pi), (0, 1)).rows
    gains = true_gains(mdp, pi, mu, PROMISED)
    assert np.abs(under_pi - (mdp.value(mu) + gains)[states]).mean() < 0.1 * np.abs(gains).mean()


def test_a_log_that_stops_before_anything_is_seen() -> None:
    mdp = random_mdp(6, 3, seed=1, gamma=GAMMA)
    logs = mdp.log(mdp.random_policy(1), 5, 1, seed=0)
    hidden = LoggedData.from_arrays(
        contexts=logs.contexts, actions=logs.actions, rewards=logs.rewards, offsets=logs.offsets,
        propensities=logs.propensities, n_actions=3,
    )  # fmt: skip
    with pytest.raises(DataError, match="at least one decision whose reward and next context are known"):
        judge_of(hidden, GAMMA)


def hidden(users: int, seed: int = 0) -> tuple[LoggedData, float]:
    """Action 1 raises a stock that no context shows and that pays in every later step; and its lift."""
    rng, steps = np.random.default_rng(seed), 12
    actions = rng.integers(0, 2, (users, steps))
    before = np.cumsum(actions, axis=1) - actions
    rewards = before + 0.2 * rng.standard_normal((users, steps))
    n = users * steps
    logs = LoggedData.from_arrays(
        contexts=rng.normal(size=(n, 2)), actions=actions.ravel(), rewards=rewards.ravel(),
        propensities=np.full(n, 0.5), offsets=np.arange(0, n + 1, steps), n_actions=2,
        terminated=np.ones(users, dtype=bool),
    ).with_rewards(rewards.ravel(), delayed=True)  # fmt: skip
    later = [sum(GAMMA**i for i in range(1, steps - t)) for t in range(steps)]  # of a unit of stock
    return logs, 0.5 * sum(GAMMA**t * later[t] for t in range(steps))


def test_what_followed_is_seen_where_no_state_shows_it() -> None:
    logs, everything = hidden(4000)
    rho = np.where(logs.actions == 1, 1.5, 0.5)
    by_value = judge_of(logs, GAMMA)
    by_log = replace(by_value, realised=True)
    assert abs(by_value.lift(rho).estimate) < 0.1 * everything  # the bonus cannot know
    assert 0.15 * everything < by_log.lift(rho).estimate < everything / 2 + 3 * by_log.lift(rho).error


def walk(users: int = 400, decisions: int = 40) -> LoggedData:
    """x' = 0.9 x -+ 1 + noise, by coin: always up ends near 10, and the log has x up to about 5."""
    rng, n = np.random.default_rng(0), users * decisions
    x, up = np.zeros((users, decisions + 1)), rng.integers(0, 2, (users, decisions))
    for t in range(decisions):
        x[:, t + 1] = 0.9 * x[:, t] + 2 * up[:, t] - 1 + 0.3 * rng.standard_normal(users)
    return LoggedData.from_arrays(
        contexts=x[:, :-1].reshape(n, 1), actions=up.ravel(), rewards=x[:, 1:].ravel(), n_actions=2,
        propensities=np.full(n, 0.5), offsets=np.arange(0, n + 1, decisions),
        final_contexts=x[:, -1:], final_observed=np.ones(users, dtype=bool),
    )  # fmt: skip


def lift_of_walk(chance: float) -> float:
    """What going up so often brings: x_t has mean 10 (2 p - 1) (1 - 0.9^t), and 0 under mu."""
    means = 10 * (2 * chance - 1) * (1 - 0.9 ** np.arange(1, 2000))
    return float(means @ (0.99 * (1 - 1 / FOLLOWED)) ** np.arange(len(means)))


def test_a_policy_that_leaves_the_log_is_doubted() -> None:
    logs = walk()
    judge = judge_of(logs, 0.99)
    lifts = {p: judge.lift(np.where(logs.actions == 1, p, 1 - p) / 0.5) for p in (0.5, 0.6, 0.8, 1.0)}
    assert lifts[0.5].off_log.max() == 0
    for near in (0.6, 0.8):
        assert lifts[near].off_log.mean() < 0.1 * lifts[near].estimate
        assert lifts[near].estimate == pytest.approx(lift_of_walk(near), rel=0.2)
    away = lifts[1.0]
    assert away.off_log.mean() > 0.15 * away.estimate
    assert away.error > 1.5 * replace(away, off_log=np.zeros(2)).error
    assert away.estimate == pytest.approx(lift_of_walk(1.0), abs=3 * away.error)


def test_a_table_has_no_visits_below_0() -> None:
    mdp = random_mdp(6, 3, seed=1, gamma=GAMMA)
    mu = mdp.random_policy(1, concentration=3.0)
    logs = mdp.log(mu, 200, 20, seed=0, ragged=True)
    lift = judge_of(logs, GAMMA).lift(ratios(mdp, logs, mdp.optimal()[1]))
    assert np.abs(lift.off_log).max() < 1e-9 * abs(lift.estimate)


def test_what_features_miss_of_mu_s_own_visits_is_no_doubt() -> None:
    """A log of 20 decisions that tells the time: features show visits below 0 even of mu itself."""
    rng, users, steps = np.random.default_rng(0), 500, 20
    n = users * steps
    time = np.tile(np.arange(steps) / steps, users)
    logs = LoggedData.from_arrays(
        contexts=np.column_stack([time, rng.normal(size=(n, 3))]), actions=rng.integers(0, 2, n), n_actions=2,
        rewards=rng.standard_normal(n), propensities=np.full(n, 0.5), offsets=np.arange(0, n + 1, steps),
        final_contexts=np.column_stack([np.ones(users), rng.normal(size=(users, 3))]),
        final_observed=np.ones(users, dtype=bool),
    )  # fmt: skip
    judge = judge_of(logs, 0.99)
    lift = judge.lift(np.where(logs.actions == 1, 1.02, 0.98))
    assert (judge._visits_of_mu(FOLLOWED)[0] < 0).mean() > 0.05
    assert np.abs(lift.off_log).max() < 0.02 * np.abs(lift.lifts).min()
