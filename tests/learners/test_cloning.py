from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.learners import BehaviourCloning, OfflineSHPI
from shpi.learners.cloning import exploration_floor, imitate
from shpi.policies import Mixture, UniformPolicy, load_policy

A = 5


def log_of(mu: np.ndarray, contexts: np.ndarray, seed: int = 0, *, propensities: bool = True) -> LoggedData:
    """One decision per user, drawn from the rows of mu [n, A]."""
    n = len(mu)
    chance = np.random.default_rng(seed).random((n, 1))
    actions = (mu.cumsum(axis=1) > chance * mu.sum(axis=1, keepdims=True)).argmax(axis=1)
    return LoggedData.from_arrays(
        contexts=contexts,
        actions=actions,
        n_actions=A,
        offsets=np.arange(n + 1),
        propensities=mu[np.arange(n), actions] if propensities else None,
        rewards=actions.astype(float),
        terminated=np.ones(n, dtype=bool),
    )


def contexts_of(n: int = 4000, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, 2))


def epsilon_greedy(contexts: np.ndarray, epsilon: float) -> np.ndarray:
    """Greedy in sharp regions of the plane."""
    angle = np.arctan2(contexts[:, 1], contexts[:, 0])
    best = np.floor((angle + np.pi) / (2 * np.pi) * A).astype(int).clip(0, A - 1)
    return (1 - epsilon) * np.eye(A)[best] + epsilon / A


def distance(policy: object, contexts: np.ndarray, mu: np.ndarray) -> float:
    probs = policy.action_probs(contexts)  # type: ignore[attr-defined]
    return float(np.abs(probs - mu).sum(axis=1).mean() / 2)


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.6, 1.0])
def test_the_floor_of_an_epsilon_greedy_policy_is_epsilon(epsilon: float) -> None:
    x = contexts_of()
    assert exploration_floor(log_of(epsilon_greedy(x, epsilon), x)) == pytest.approx(epsilon, abs=1e-6)


def test_a_uniform_policy_is_recovered_exactly() -> None:
    x = contexts_of(500)
    mu = np.full((500, A), 1 / A)
    assert distance(BehaviourCloning().fit(log_of(mu, x)), x, mu) < 1e-6


def test_logged_probabilities_make_the_clone_much_sharper() -> None:
    x = contexts_of()
    new = contexts_of(2000, seed=2)
    mu, truth = epsilon_greedy(x, 0.3), epsilon_greedy(new, 0.3)
    blind = distance(BehaviourCloning().fit(log_of(mu, x, propensities=False)), new, truth)
    seeing = distance(BehaviourCloning().fit(log_of(mu, x)), new, truth)
    assert seeing < 0.5 * blind
    assert seeing < 0.04


def test_a_floor_that_does_not_fit_is_given_up() -> None:
    # Uniform over three actions that depend on the context: every p is 1/3, which looks like exploration.
    x = contexts_of()
    sign = (x[:, 0] > 0).astype(int)
    mu = np.zeros((len(x), A))
    for offset in range(3):
        mu[np.arange(len(x)), 2 * sign + offset] = 1 / 3
    logs = log_of(mu, x)
    assert exploration_floor(logs) > 0.5
    clone = BehaviourCloning().fit(logs)
    forced = imitate(logs, clone.features, np.arange(len(x)), 0.1, 40, exploration_floor(logs))
    assert clone.floor == 0.0
    assert distance(clone, x, mu) < 0.5 * distance(forced, x, mu)


def test_the_floor_lies_on_the_candidates_alone() -> None:
    x = contexts_of(600)
    mask = np.ones((600, A), dtype=bool)
    mask[::2, 3:] = False
    mu = mask / mask.sum(axis=1, keepdims=True)
    logs = log_of(mu, x)
    masked = LoggedData.from_arrays(
        contexts=x, actions=logs.actions, n_actions=A, offsets=logs.offsets,
        propensities=logs.propensities, rewards=logs.rewards, candidates=mask,
    )  # fmt: skip
    probs = BehaviourCloning().fit(masked).action_probs(x, mask)
    np.testing.assert_allclose(probs, mu, atol=1e-6)


def test_where_mu_never_explores_a_clone_is_returned() -> None:
    x = contexts_of(1000)
    mu = epsilon_greedy(x, 0.0)
    policy = OfflineSHPI(k=3, progress=False).fit(log_of(mu, x))
    assert policy.chosen == 0
    assert not policy.proven
    assert "<- returned" not in str(policy)
    assert "the logging policy" in policy.notes[-1]
    assert (policy.action_probs(x).argmax(axis=1) == mu.argmax(axis=1)).mean() > 0.97


def test_an_improved_policy_can_be_a_part_of_a_saved_one(tmp_path: Path) -> None:
    x = contexts_of(400)
    policy = OfflineSHPI(k=1, progress=False).fit(log_of(epsilon_greedy(x, 0.5), x))
    mixed = Mixture((policy, UniformPolicy(A)), (0.3, 0.7))
    again = load_policy(mixed.save(tmp_path / "mixed"))
    np.testing.assert_array_equal(again.action_probs(x), mixed.action_probs(x))
