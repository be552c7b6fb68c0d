"""What acts on f in the end, and what is returned if nothing can be shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shpi.advantages import StateValues, k_step_advantages, ratios_of, taken_probs
from shpi.data.logged import LoggedData
from shpi.learners import OfflineSHPI
from shpi.learners import sharper as module
from shpi.learners.cloning import FAR, BehaviourCloning, distance_to_mu, loss_of_mu
from shpi.learners.on_log import Improvement
from shpi.learners.sharper import bounded_or_favourite, instead_of
from shpi.oracles import Ridge
from shpi.policies import AmongLikely, BoundedRatio, UniformPolicy
from shpi.testing.tabular import TabularMDP

A, STATES, EPSILON = 3, 3, 0.3


def world(cost: float) -> TabularMDP:
    """Action 0 goes on; any other earns ``cost`` now, and leads into a state where nothing is earned."""
    transition = np.zeros((STATES, A, STATES))
    transition[:2, 0] = [0.5, 0.5, 0.0]
    transition[:2, 1:, 2] = 1.0
    transition[2, :, 2] = 1.0
    reward = np.zeros((STATES, A))
    reward[:2] = [1.0, 1.0 + cost, 1.0 + cost]
    return TabularMDP(
        transition=transition,
        reward=reward,
        gamma=0.9,
        initial=np.array([0.5, 0.5, 0.0]),
        terminal=np.zeros(STATES, dtype=bool),
    )


def mostly(action: int) -> np.ndarray:
    table = np.full((STATES, A), EPSILON / A)
    table[:, action] += 1 - EPSILON
    return table


def head_of(mdp: TabularMDP, table: np.ndarray, scores: np.ndarray) -> Any:
    """Who wins with these scores [S, A], on a log of the policy."""
    logs = mdp.log(table, 1_000, 20, seed=0)
    oracle = Ridge(penalty=1e-6, shared_penalty=1e-6).prepare(logs, seed=0)
    states = logs.contexts.argmax(axis=1)
    scorer = oracle.fit(scores[states, logs.actions])
    value = StateValues.zeros(logs)
    return bounded_or_favourite(
        Improvement(logs=logs, mu=mdp.policy(table), reach=1.2),
        scorer,
        lambda probs: k_step_advantages(
            logs, value, k=15, gamma=0.9, ratios=ratios_of(logs, probs), weight_clip=(0.0, 10.0)
        ),
        oracle,
    )


def test_exploration_ends_where_it_costs_what_a_short_window_does_not_show() -> None:
    mdp = world(cost=0.5)
    myopic = mdp.reward  # the exploratory actions earn more at once
    assert mdp.value(mostly(0))[0] > mdp.value(np.full((STATES, A), 1 / A))[0]
    winner = head_of(mdp, mostly(0), myopic)
    assert isinstance(winner, AmongLikely)
    np.testing.assert_array_equal(winner.action_probs(mdp.contexts(np.arange(2)))[:, 0], 1.0)


def test_bounded_ratios_stay_where_mu_s_favourite_is_bad() -> None:
    mdp = world(cost=-3.0)
    assert isinstance(head_of(mdp, mostly(1), mdp.reward), BoundedRatio)


def test_of_two_equals_bounded_ratios_stay() -> None:
    mdp = world(cost=0.5)
    uniform = np.full((STATES, A), 1 / A)
    assert isinstance(head_of(mdp, uniform, mdp.reward), BoundedRatio)  # both greedy in f


@pytest.mark.parametrize("share", [1.0, 0.3, 0.0])
@pytest.mark.parametrize("masked", [False, True])
def test_probabilities_on_the_log_are_those_of_the_policy(share: float, masked: bool) -> None:
    mdp = world(cost=0.5)
    mu = mdp.random_policy(3)
    logs = mdp.log(mu, 100, 10, seed=1)
    if masked:
        allowed = np.random.default_rng(0).random((len(logs), A)) < 0.5
        allowed[np.arange(len(logs)), logs.actions] = True
        logs = LoggedData.from_arrays(
            contexts=logs.contexts,
            actions=logs.actions,
            offsets=logs.offsets,
            rewards=logs.rewards,
            propensities=logs.propensities,
            n_actions=A,
            candidates=allowed,
        )
    improve = Improvement(logs=logs, mu=mdp.policy(mu), reach=1.2)
    scorer = Ridge().prepare(logs, seed=0).fit(np.random.default_rng(1).normal(size=len(logs)))
    expected = taken_probs(logs, AmongLikely(scorer, mdp.policy(mu), share))
    assert 0 < expected.mean() < 1
    np.testing.assert_array_equal(improve.likely_probs(scorer, share), expected)


# ---------------------------------------------------------------------- within the learner


def noisy(users: int, effect: float, seed: int = 0) -> LoggedData:
    """One step per user: the action of the context's sign earns ``effect`` more, in unit noise."""
    rng = np.random.default_rng(seed)
    x = rng.choice([-1.0, 1.0], users)
    actions = rng.integers(0, 2, users)
    rewards = effect * (actions == (x > 0)) + rng.standard_normal(users)
    return LoggedData.from_arrays(
        contexts=x[:, None],
        actions=actions,
        offsets=np.arange(users + 1),
        rewards=rewards,
        propensities=np.full(users, 0.5),
        terminated=np.ones(users, dtype=bool),
        n_actions=2,
    )


def test_f_acts_among_the_likely_where_no_gain_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = noisy(4_000, 0.6)
    assert isinstance(OfflineSHPI(progress=False).fit(logs).policy, BoundedRatio)
    monkeypatch.setattr("shpi.learners.gain.clustered_error", lambda parts: 1e9)  # nothing can be measured
    found = OfflineSHPI(progress=False).fit(logs)
    assert found.chosen > 0
    assert not found.proven
    assert isinstance(found.policy, AmongLikely)
    assert found.policy.share == module.UNPROVEN
    assert "10%" in str(found)


def test_without_held_out_users_the_last_iterate_stays_as_it_is() -> None:
    found = OfflineSHPI(held_out=0.0, progress=False).fit(noisy(500, 0.6))
    assert isinstance(found.policy, BoundedRatio)


# ---------------------------------------------------------------------- the distance of a clone


def test_the_loss_of_mu_is_its_entropy_seen_through_the_taken_action() -> None:
    mdp = world(cost=0.5)
    logs = mdp.log(mostly(0), 3_000, 5, seed=0)
    p = np.array([1 - EPSILON + EPSILON / A] + [EPSILON / A] * 2)
    assert loss_of_mu(logs) == pytest.approx(-(p * (p * np.log(p) + (1 - p) * np.log(1 - p))).sum(), rel=0.02)


def test_mu_is_at_no_distance_and_others_are_far() -> None:
    mdp = world(cost=0.5)
    logs = mdp.log(mostly(0), 300, 10, seed=0)
    scorer = Ridge().prepare(logs, seed=0).fit(np.zeros(len(logs)))
    mu, clone, uniform = mdp.policy(mostly(0)), BehaviourCloning().fit(logs), UniformPolicy(A)
    assert distance_to_mu(mu, logs) == pytest.approx(0.0, abs=1e-6)
    assert 0 <= distance_to_mu(clone, logs) < 1e-3
    assert distance_to_mu(uniform, logs) > FAR
    assert instead_of(clone, logs, scorer) is clone
    assert isinstance(instead_of(uniform, logs, scorer), AmongLikely)


def test_a_clone_that_is_far_gets_more_features(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    n, steps = 12_000, 20
    x = rng.uniform(-3, 3, (n, 2))
    likes = ((np.floor(1.5 * x[:, 0]) + np.floor(1.5 * x[:, 1])) % 2).astype(int)  # a chess board
    actions = np.where(rng.random(n) < 0.8, likes, 1 - likes)
    logs = LoggedData.from_arrays(
        contexts=x,
        actions=actions,
        offsets=np.arange(n // steps + 1) * steps,
        rewards=np.zeros(n),
        propensities=np.where(actions == likes, 0.8, 0.2),
        n_actions=2,
    )
    finer = BehaviourCloning().fit(logs)
    monkeypatch.setattr("shpi.learners.cloning.FAR", np.inf)
    coarse = BehaviourCloning().fit(logs)
    assert (finer.features.width, coarse.features.width) == (601, 201)
    assert distance_to_mu(finer, logs) < 0.7 * distance_to_mu(coarse, logs)
