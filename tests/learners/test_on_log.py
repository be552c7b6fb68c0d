"""What policy iteration computes on the log: pi(a_t|x_t), and the held-out gain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shpi.advantages import taken_probs
from shpi.data.logged import LoggedData
from shpi.features import Identity
from shpi.learners._shpi.on_log import Improvement
from shpi.learners.cloning import BehaviourCloning
from shpi.oracles import Ridge
from shpi.policies import Greedy
from shpi.policies.near_mu.bounded import BoundedRatio
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
        for probs in (improve.taken_probs(scorer, prepared), improve.taken_probs(scorer)):
            np.testing.assert_allclose(probs, expected, atol=1e-6)


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
