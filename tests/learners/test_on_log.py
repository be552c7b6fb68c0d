"""What policy iteration computes on the log: pi(a_t|x_t), the choice of k, and the held-out gain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from shpi.learners.horizon import choose_horizon, possible_horizons, smallest_uncontradicted

from shpi.advantages import Advantages, StateValues, k_step_advantages, taken_probs
from shpi.data.logged import LoggedData
from shpi.features import Identity
from shpi.learners.cloning import BehaviourCloning
from shpi.learners.gain import clustered_error, gain_parts, held_out_gain
from shpi.learners.on_log import Improvement
from shpi.oracles import Ridge
from shpi.policies import Greedy
from shpi.policies.bounded import BoundedRatio
from shpi.testing.tabular import TabularMDP, random_mdp

TABULAR = Ridge(features=Identity(), penalty=1e-3, shared_penalty=1e-3)


@pytest.fixture(scope="module")
def world() -> tuple[TabularMDP, np.ndarray, LoggedData]:
    mdp = random_mdp(8, 4, 3, gamma=0.9)
    mu = mdp.random_policy(1, concentration=3.0)
    return mdp, mu, mdp.log(mu, 400, 25, seed=0)


# ---------------------------------------------------------------------- Improvement


@pytest.mark.parametrize("reach", [None, 0.0, 1.0, 1.7])
@pytest.mark.parametrize("masked", [False, True])
def test_probabilities_on_the_log_are_those_of_the_policy(
    world: Any, reach: float | None, masked: bool
) -> None:
    mdp, mu, logs = world
    if masked:
        allowed = np.random.default_rng(0).random((len(logs), 4)) < 0.5
        allowed[np.arange(len(logs)), logs.actions] = True
        logs = replace(logs, candidates=allowed)
    improve = Improvement(logs=logs, mu=mdp.policy(mu), reach=reach)
    targets = np.random.default_rng(1).normal(size=len(logs))
    prepared = TABULAR.prepare(logs, seed=0)
    for shift in (0.0, 1e9):  # single precision must not lose the order of scores around a high level
        scorer = prepared.fit(targets + shift)
        policy = improve.policy(scorer)
        assert isinstance(policy, Greedy if reach is None else BoundedRatio)
        expected = taken_probs(logs, policy)
        for found in (improve.taken_probs(scorer, prepared), improve.taken_probs(scorer)):
            np.testing.assert_allclose(found, expected, atol=1e-6)


class Waves:
    """Scores that are not linear in any features that could be kept."""

    n_actions, width = 4, 8

    def scores(self, contexts: Any) -> np.ndarray:
        turns: np.ndarray = np.sin(np.asarray(contexts, dtype=float) @ np.arange(32.0).reshape(8, 4))
        return turns


@pytest.mark.parametrize("masked", [False, True])
def test_a_logistic_clone_in_single_precision_gives_the_same_probabilities(world: Any, masked: bool) -> None:
    _, _, logs = world
    if masked:
        allowed = np.random.default_rng(2).random((len(logs), 4)) < 0.5
        allowed[np.arange(len(logs)), logs.actions] = True
        logs = replace(logs, candidates=allowed)
    clone = BehaviourCloning().fit(logs)
    prepared = TABULAR.prepare(logs, seed=0)
    scorer = prepared.fit(np.random.default_rng(3).normal(size=len(logs)))
    improve = Improvement(logs=logs, mu=clone, reach=1.2)
    expected = taken_probs(logs, improve.policy(scorer))
    assert 0.1 < expected.mean() < 0.9
    for _ in range(2):  # the caps are kept for the second round
        np.testing.assert_allclose(improve.taken_probs(scorer, prepared), expected, atol=1e-5)


def test_scorers_that_are_not_linear_go_another_way(world: Any) -> None:
    mdp, mu, logs = world
    improve = Improvement(logs=logs, mu=mdp.policy(mu), reach=1.2)
    expected = taken_probs(logs, improve.policy(Waves()))
    np.testing.assert_allclose(improve.taken_probs(Waves()), expected, atol=1e-6)


# ---------------------------------------------------------------------- the choice of k


def chain(n_users: int, seed: int) -> LoggedData:
    """Action 1 pays 1, but ten decisions later; the context is only the time since the start."""
    rng, steps, delay = np.random.default_rng(seed), 60, 10
    actions = rng.integers(0, 2, (n_users, steps))
    rewards = 0.3 * rng.normal(size=(n_users, steps))
    rewards[:, delay:] += actions[:, :-delay]
    n = n_users * steps
    return LoggedData.from_arrays(
        contexts=np.tile(np.arange(steps, dtype=np.float32), n_users)[:, None],
        actions=actions.ravel(), rewards=rewards.ravel(), propensities=np.full(n, 0.5),
        offsets=np.arange(0, n + 1, steps), final_contexts=np.full((n_users, 1), 60.0),
        final_observed=np.ones(n_users, dtype=bool), n_actions=2,
    )  # fmt: skip


def chosen_k(logs: LoggedData, values: StateValues, probs: np.ndarray, gamma: float) -> Any:
    def advantages(k: int) -> Advantages:
        return k_step_advantages(logs, values, k=k, gamma=gamma)

    return choose_horizon(logs, advantages, probs)


def test_an_exact_bonus_needs_few_steps() -> None:
    chosen = []
    for seed in range(5):
        mdp = random_mdp(8, 3, seed, gamma=0.95)
        mu = np.full((8, 3), 1 / 3)
        logs = mdp.log(mu, 200, 60, seed=seed, ragged=False)
        states, value = mdp.states_of(logs.contexts), mdp.value(mu)
        exact = StateValues(rows=value[states], final=value[mdp.states_of(logs.final_contexts)])
        greedy = np.eye(3)[mdp.q(mu).argmax(axis=1)]
        found = chosen_k(logs, exact, greedy[states, logs.actions], 0.95)
        chosen.append(found.k)
        truth = float(mdp.occupancy(mu, horizon=60) @ ((greedy - mu) * mdp.q(mu)).sum(axis=1))
        for gain, error in zip(found.gains, found.errors, strict=True):
            assert abs(gain - truth) < 4 * error
    assert np.median(chosen) <= 3  # a single one may be contradicted by chance


def test_an_effect_after_ten_steps_is_waited_for() -> None:
    logs = chain(600, 0)
    found = chosen_k(logs, StateValues.zeros(logs), (logs.actions == 1).astype(float), 1.0)
    assert found.k >= 20
    before = [gain for k, gain in zip(found.horizons, found.gains, strict=True) if k <= 10]
    assert np.abs(before).max() < 0.1  # nothing to see yet
    assert found.gains[-1] > 0.3
    assert f"k = {found.k}, the smallest that no larger one contradicts" in str(found)


def test_the_rule_by_hand() -> None:
    flat = [np.full(50, 0.01 * sign) for sign in (1, -1, 1)]  # paired errors of about 0.1
    assert smallest_uncontradicted([1.0, 1.01, 1.0], flat) == 0
    assert smallest_uncontradicted([0.0, 1.0, 1.0], flat) == 1
    assert smallest_uncontradicted([0.0, 1.0, 3.0], flat) == 2


def test_no_horizon_beyond_the_longest_trajectory() -> None:
    assert max(possible_horizons(chain(3, 0))) < 60
    short = chain(3, 0).select(np.arange(1))
    assert possible_horizons(short)


# ---------------------------------------------------------------------- the gain


def test_the_gain_is_that_of_one_decision_and_zero_for_mu(world: Any) -> None:
    mdp, mu, _ = world
    logs = mdp.log(mu, 3000, 20, seed=1, ragged=False)
    states, value = mdp.states_of(logs.contexts), mdp.value(mu)
    exact = StateValues(rows=value[states], final=value[mdp.states_of(logs.final_contexts)])
    advantages = k_step_advantages(logs, exact, k=1, gamma=0.9)
    assert logs.propensities is not None
    same = held_out_gain(logs, advantages, logs.propensities, 0.95)
    assert same.estimate == pytest.approx(0.0, abs=1e-12)
    assert same.effective_decisions == pytest.approx(len(logs))
    pi = mdp.random_policy(9)
    found = held_out_gain(logs, advantages, pi[states, logs.actions], 0.95)
    truth = float(mdp.occupancy(mu, horizon=20) @ ((pi - mu) * mdp.q(mu)).sum(axis=1))
    assert abs(found.estimate - truth) < 4 * found.standard_error
    assert found.lower < found.estimate < found.lower + 2 * found.standard_error
    assert found.users == 3000


def test_the_error_of_the_gain_is_that_of_repeated_logs(world: Any) -> None:
    mdp, mu, _ = world
    pi, gains, errors = mdp.random_policy(9), [], []
    for seed in range(60):
        logs = mdp.log(mu, 100, 20, seed=seed, ragged=False)
        states = mdp.states_of(logs.contexts)
        advantages = k_step_advantages(logs, StateValues.zeros(logs), k=2, gamma=0.9)
        rho = pi[states, logs.actions] / mu[states, logs.actions]
        gain, parts = gain_parts(logs, advantages, rho)
        gains.append(gain)
        errors.append(clustered_error(parts))
    assert np.mean(errors) == pytest.approx(np.std(gains, ddof=1), rel=0.3)


def test_a_policy_that_the_log_never_follows_has_no_bound(world: Any) -> None:
    _, _, logs = world
    advantages = k_step_advantages(logs, StateValues.zeros(logs), k=1, gamma=0.9)
    none = held_out_gain(logs, advantages, np.zeros(len(logs)), 0.95)
    assert none.lower == -np.inf
    assert none.effective_decisions == 0
