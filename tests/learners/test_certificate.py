"""What is printed is what is returned; and nothing is called proven where there is nothing to prove."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.learners import ImprovedPolicy, OfflineSHPI
from shpi.policies import Tilted
from shpi.protocols import Policy
from shpi.testing.tabular import OneHotPolicy, TabularMDP, random_mdp
from tests.learners.test_judge import judge_of, true_lift

GAMMA = 0.9
SHPI = OfflineSHPI(gamma=GAMMA)


def spread_of(policy: Tilted, logs: LoggedData) -> float:
    """The standard deviation of f under mu, in which sizes are told."""
    mu = policy.mu.action_probs(logs.contexts, logs.candidates)
    scores = policy.scorer.scores(logs.contexts)
    relative = scores - np.sum(mu * scores, axis=1, keepdims=True)
    return float(np.sqrt(np.sum(mu * relative**2) / len(logs)))


def check_certificate(improved: ImprovedPolicy, logs: LoggedData) -> None:
    """One line is marked, and it is that of the policy that acts."""
    marked = [line for line in str(improved).splitlines() if "<- returned" in line]
    trial = improved.trials[improved.chosen - 1]
    assert [t for t in improved.trials if t.returned] == [trial]
    assert len(marked) == 1
    assert marked[0].startswith(trial.words)
    assert improved.lift == replace(trial.lift, lower=improved.lift.lower)
    assert improved.lift.lower <= trial.lift.lower  # no more is promised than what was tested
    assert f"Lower bound of its lift: {improved.lift.lower:+.4g}" in improved.notes[-1]
    assert f"{improved.lift.estimate:+.4g}" in marked[0]
    assert improved.proven
    assert improved.lift.lower >= 0
    policy = improved.policy
    assert isinstance(policy, Tilted)
    size = re.search(r"size ([\d.]+)", trial.words)
    told = 0.0 if size is None else float(size.group(1))
    assert policy.size * spread_of(policy, logs) == pytest.approx(told, rel=0.01)
    assert (policy.power > 1) == ("favourite" in trial.words)
    np.testing.assert_array_equal(
        improved.action_probs(logs.contexts[:50]), policy.action_probs(logs.contexts[:50])
    )


def case(seed: int, mu: np.ndarray | None = None, users: int = 400) -> tuple[TabularMDP, LoggedData]:
    mdp = random_mdp(5, 3, seed=seed, gamma=GAMMA, noise=0.3)
    table = mdp.random_policy(seed + 50, concentration=4.0) if mu is None else mu
    return mdp, mdp.log(table, users, 12, seed=seed, ragged=False)


@cache
def learned(seed: int) -> tuple[LoggedData, ImprovedPolicy]:
    _, logs = case(seed)
    return logs, SHPI.fit(logs)


@pytest.mark.parametrize("seed", range(4))
def test_the_line_that_is_marked_is_the_policy_that_acts(seed: int) -> None:
    logs, improved = learned(seed)
    assert improved.chosen > 0
    assert len(improved.trials) > 2
    assert improved.history == ()
    check_certificate(improved, logs)


def test_mu_s_favourite_is_marked_where_it_is_returned() -> None:
    """Mu is optimal but for its exploration, and the log is small: the favourite beats what is learned."""
    mdp = random_mdp(60, 4, seed=3, gamma=GAMMA, noise=2.0)
    mu = 0.5 * mdp.optimal()[1] + 0.125
    logs = mdp.log(mu, 400, 10, seed=0, ragged=False)
    improved = replace(SHPI, behaviour=OneHotPolicy(mu)).fit(logs)
    assert "favourite" in improved.trials[improved.chosen - 1].words
    check_certificate(improved, logs)
    np.testing.assert_allclose(improved.action_probs(np.eye(60)), mdp.optimal()[1], atol=1e-6)


def test_the_lift_is_that_of_the_returned_policy() -> None:
    """In a rich log halves and whole agree, so the judge says of the returned policy what its trial says."""
    mdp, logs = case(2, users=4000)
    improved = SHPI.fit(logs)
    assert improved.lift is not None
    taken = improved.action_probs(mdp.contexts(np.arange(5)))[mdp.states_of(logs.contexts), logs.actions]
    assert logs.propensities is not None
    again = judge_of(logs, GAMMA).lift(taken / logs.propensities)
    assert again.estimate == pytest.approx(improved.lift.estimate, abs=1.5 * improved.lift.standard_error)
    others = [t for t in improved.trials if abs(t.lift.estimate - again.estimate) > 5 * t.lift.standard_error]
    assert others  # so that a certificate of another trial would have failed


def test_the_true_lift_is_above_the_bound() -> None:
    """In 40 worlds the lower bound of 95 % fails in at most 5; more by chance once in 200 times."""
    below = checked = 0
    for seed in range(40):
        mdp, logs = case(seed, users=120)
        improved = SHPI.fit(logs)
        assert improved.lift is not None
        if improved.chosen == 0:
            continue
        states, mu = np.arange(5), mdp.random_policy(seed + 50, concentration=4.0)
        pi = improved.action_probs(mdp.contexts(states))
        below += true_lift(mdp, pi, mu) < improved.lift.lower
        checked += 1
    assert checked >= 30
    assert below <= 5


def test_where_nothing_is_proven_mu_is_returned_and_no_line_is_marked() -> None:
    mdp = random_mdp(5, 3, seed=1, gamma=GAMMA, noise=1.0)
    best = mdp.optimal()[1]
    mu: Policy = OneHotPolicy(0.97 * best + 0.01)
    logs = mdp.log(0.97 * best + 0.01, 60, 10, seed=1)
    improved = replace(SHPI, behaviour=mu).fit(logs)
    assert improved.chosen == 0
    assert not improved.proven
    assert "<- returned" not in str(improved)
    assert not any(trial.returned for trial in improved.trials)
    assert "logging policy" in improved.notes[-1]
    assert improved.notes[-1] in str(improved)
    np.testing.assert_array_equal(improved.action_probs(np.eye(5)), mu.action_probs(np.eye(5)))
    assert improved.lift is not None
    assert improved.lift.lower <= 0


def test_too_few_users_to_test_anything() -> None:
    _, logs = case(0)
    improved = SHPI.fit(logs.select(np.arange(3)))
    assert (improved.chosen, improved.trials, improved.lift, improved.proven) == (0, (), None, False)
    assert "3 users are too few" in str(improved)


def null_log(seed: int) -> LoggedData:
    """Rewards that depend on the context and on the user, but not on actions; mu is uneven."""
    rng, users, steps = np.random.default_rng(seed), 80, 6
    n = users * steps
    contexts = rng.normal(size=(n, 2))
    logits = np.stack([contexts[:, 0], np.zeros(n), 0.5 * contexts[:, 1]], axis=1)
    mu = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    actions = (mu.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    mood = np.repeat(rng.standard_normal(users), steps)
    return LoggedData.from_arrays(
        contexts=contexts, actions=actions, propensities=mu[np.arange(n), actions],
        rewards=contexts[:, 0] + mood + rng.standard_normal(n), offsets=np.arange(0, n + 1, steps),
        n_actions=3, final_contexts=rng.normal(size=(users, 2)), final_observed=np.ones(users, dtype=bool),
    )  # fmt: skip


def test_nothing_is_proven_where_actions_do_not_matter() -> None:
    """At 95 % one of 24 is expected, and more than four by chance once in 150 times."""
    policies = [SHPI.fit(null_log(seed)) for seed in range(24)]
    assert sum(policy.proven for policy in policies) <= 4
    assert all(policy.chosen == 0 for policy in policies if not policy.proven)


def test_the_same_log_with_an_effect_is_proven() -> None:
    """So that the test above is not passed by a learner that proves nothing."""
    proven = 0
    for seed in range(10):
        logs = null_log(seed)
        assert logs.rewards is not None
        proven += SHPI.fit(logs.with_rewards(logs.rewards + 2.0 * (logs.actions == 2))).proven
    assert proven >= 8


def hidden_log(effect: float, seed: int) -> LoggedData:
    """Mu follows something that is not in the contexts, so that no clone can stand for it."""
    rng, users, steps = np.random.default_rng(seed), 300, 6
    n = users * steps
    contexts, favourite = rng.normal(size=(n, 2)), rng.integers(0, 5, n)
    actions = np.where(rng.random(n) < 0.9, favourite, rng.integers(0, 5, n))
    good = np.where(contexts[:, 0] > 0, 1, 3)
    return LoggedData.from_arrays(
        contexts=contexts, actions=actions, propensities=np.where(actions == favourite, 0.92, 0.02),
        rewards=effect * (actions == good) + rng.standard_normal(n), offsets=np.arange(0, n + 1, steps),
        n_actions=5, final_contexts=rng.normal(size=(users, 2)), final_observed=np.ones(users, dtype=bool),
    )  # fmt: skip


def test_where_mu_cannot_be_imitated_the_user_is_asked_for_it() -> None:
    sides = np.array([[2.0, 0.0], [-2.0, 0.0]])
    improved = SHPI.fit(hidden_log(2.0, 0))
    assert "behaviour=" in str(improved)
    assert [t.returned for t in improved.trials] == [True]
    assert improved.lift is not None
    assert improved.lift.estimate == improved.trials[0].lift.estimate
    assert improved.lift.lower <= improved.trials[0].lift.lower  # it is followed for fewer decisions
    np.testing.assert_array_equal(improved.action_probs(sides), np.eye(5)[[1, 3]])
    assert ("unproven" in str(improved)) == (not improved.proven)
    nothing = SHPI.fit(hidden_log(0.0, 1))
    assert "behaviour=" in str(nothing)
    assert nothing.chosen == 0
    assert not nothing.proven
    np.testing.assert_allclose(nothing.action_probs(sides), 0.2, atol=0.1)  # the clone


def test_where_mu_cannot_be_imitated_it_is_rarely_left_for_nothing() -> None:
    """Proven or not: at 95 % one or two of 30 are expected, and more than four by chance once in 70 times."""
    policies = [SHPI.fit(hidden_log(0.0, seed)) for seed in range(100, 130)]
    assert sum(policy.chosen > 0 for policy in policies) <= 4
    effects = [SHPI.fit(hidden_log(0.6, seed)) for seed in range(100, 110)]
    assert sum(policy.chosen > 0 for policy in effects) >= 8  # so that the line above can fail


def test_candidates_are_told_apart_by_their_words() -> None:
    for seed in range(4):
        words = [trial.words for trial in learned(seed)[1].trials]
        assert len(set(words)) == len(words)
