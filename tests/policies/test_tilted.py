"""mu tilted towards scores: from mu itself to the greedy policy on mu's support, by formula and by limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shpi.errors import ConfigError
from shpi.features import Identity, Standardise
from shpi.policies import LinearScorer, TabularPolicy, Tilted, UniformPolicy, load_policy, save_policy
from shpi.policies.near_mu.tilted import tilt
from shpi.testing import check_policy

S, A = 7, 4
STATES = np.arange(S, dtype=np.float32)[:, None]


@pytest.fixture(scope="module")
def mu() -> np.ndarray:
    """With an action of probability 0 in every state but the last."""
    table = np.random.default_rng(0).dirichlet(np.ones(A), size=S)
    table[np.arange(S - 1), np.arange(S - 1) % A] = 0.0
    scaled: np.ndarray = table / table.sum(axis=1, keepdims=True)
    return scaled


@pytest.fixture(scope="module")
def scorer() -> LinearScorer:
    features = Identity(intercept=True).fit(STATES)
    return LinearScorer(np.random.default_rng(1).normal(size=(A, features.width)), features)


def tilted(mu: np.ndarray, scorer: LinearScorer, size: float, power: float = 1.0) -> np.ndarray:
    return Tilted(scorer, TabularPolicy(mu), size, power).action_probs(STATES)


@pytest.mark.parametrize(("size", "power"), [(0.0, 1.0), (0.7, 1.0), (3.0, 1.0), (0.0, 3.0), (1.5, 2.0)])
def test_it_is_the_formula(mu: np.ndarray, scorer: LinearScorer, size: float, power: float) -> None:
    weights = mu**power * np.exp(size * scorer.scores(STATES))
    expected = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(tilted(mu, scorer, size, power), expected, atol=1e-12)


def test_size_0_and_power_1_are_mu(mu: np.ndarray, scorer: LinearScorer) -> None:
    np.testing.assert_allclose(tilted(mu, scorer, 0.0), mu, atol=1e-15)


@pytest.mark.parametrize("size", [1e4, 1e300])
def test_a_large_size_is_greedy_on_the_support_of_mu(
    mu: np.ndarray, scorer: LinearScorer, size: float
) -> None:
    best = np.where(mu > 0, scorer.scores(STATES), -np.inf).argmax(axis=1)
    assert (best != scorer.scores(STATES).argmax(axis=1)).any()  # the support matters here
    np.testing.assert_allclose(tilted(mu, scorer, size), np.eye(A)[best], atol=1e-12)


def test_a_large_power_is_mu_s_favourite(mu: np.ndarray, scorer: LinearScorer) -> None:
    np.testing.assert_allclose(tilted(mu, scorer, 0.0, 5e3), np.eye(A)[mu.argmax(axis=1)], atol=1e-6)


@pytest.mark.parametrize(("size", "power"), [(0.0, 1.0), (1.0, 1.0), (1e6, 1.0), (2.0, 32.0)])
def test_where_mu_never_goes_nor_does_it(
    mu: np.ndarray, scorer: LinearScorer, size: float, power: float
) -> None:
    probs = tilted(mu, scorer, size, power)
    assert (probs[mu == 0] == 0).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1.0)


def test_a_high_score_off_the_support_changes_nothing(mu: np.ndarray) -> None:
    scores = np.random.default_rng(2).normal(size=(S, A))
    lifted = np.where(mu > 0, scores, 1e4)
    np.testing.assert_allclose(tilt(mu, lifted, 2.0, 1.0), tilt(mu, scores, 2.0, 1.0), atol=1e-10)


def test_scores_matter_only_relative_to_each_other(mu: np.ndarray) -> None:
    scores = np.random.default_rng(3).normal(size=(S, A))
    shifted = scores + 100.0 * np.arange(S)[:, None]
    np.testing.assert_allclose(tilt(mu, shifted, 2.0, 1.0), tilt(mu, scores, 2.0, 1.0), atol=1e-10)


def test_a_mask_is_obeyed(mu: np.ndarray, scorer: LinearScorer) -> None:
    allowed = np.random.default_rng(4).random((S, A)) < 0.5
    allowed[np.arange(S), mu.argmax(axis=1)] = True
    assert not allowed.all(axis=1).all()
    probs = Tilted(scorer, TabularPolicy(mu), 1.5).action_probs(STATES, allowed)
    weights = np.where(allowed, mu * np.exp(1.5 * scorer.scores(STATES)), 0.0)
    np.testing.assert_allclose(probs, weights / weights.sum(axis=1, keepdims=True), atol=1e-12)
    assert (probs[~allowed] == 0).all()


def test_it_passes_the_suite() -> None:
    contexts = np.random.default_rng(5).normal(size=(30, 3)).astype(np.float32)
    features = Standardise().fit(contexts)
    scorer = LinearScorer(np.random.default_rng(6).normal(size=(A, features.width)), features)
    allowed = np.random.default_rng(7).random((30, A)) < 0.6
    allowed[:, 0] = True
    check_policy(Tilted(scorer, UniformPolicy(A), 2.0), contexts, allowed)


def test_it_saves_and_loads(mu: np.ndarray, scorer: LinearScorer, tmp_path: Path) -> None:
    policy = Tilted(scorer, TabularPolicy(mu), 1.25, 3.0)
    back = load_policy(save_policy(policy, tmp_path / "policy"))
    assert isinstance(back, Tilted)
    assert (back.size, back.power) == (1.25, 3.0)
    np.testing.assert_array_equal(back.action_probs(STATES), policy.action_probs(STATES))


@pytest.mark.parametrize(
    ("size", "power"),
    [(-0.1, 1.0), (np.nan, 1.0), (np.inf, 1.0), (1.0, 0.5), (1.0, np.nan), (1.0, np.inf)],
)
def test_bad_settings(mu: np.ndarray, scorer: LinearScorer, size: float, power: float) -> None:
    with pytest.raises(ConfigError, match="a size of at least 0 and a power of at least 1"):
        Tilted(scorer, TabularPolicy(mu), size, power)


def test_mu_over_other_actions(scorer: LinearScorer) -> None:
    with pytest.raises(ConfigError):
        Tilted(scorer, UniformPolicy(A + 1), 1.0)
