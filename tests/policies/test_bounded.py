"""BoundedRatio: the best policy within pi <= c mu, against a linear program and its own fast form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from shpi.errors import ConfigError
from shpi.features import Identity
from shpi.policies import Greedy, LinearScorer, UniformPolicy, load_policy, save_policy
from shpi.policies.near_mu.bounded import BoundedRatio, ratio_caps, taken_within
from shpi.testing import check_policy

FEATURES = Identity(intercept=False).fit(np.zeros((1, 3)))


class Fixed:
    """The same probabilities everywhere, over the candidates."""

    def __init__(self, probs):
        self.probs = np.asarray(probs, dtype=float)
        self.n_actions = len(self.probs)

    def action_probs(self, contexts, candidates=None):
        table = np.tile(self.probs, (len(contexts), 1))
        if candidates is not None:
            table = np.where(candidates, table, 0.0)
        return table / table.sum(axis=1, keepdims=True)


def scorer(seed: int = 0, n_actions: int = 4) -> LinearScorer:
    return LinearScorer(np.random.default_rng(seed).normal(size=(n_actions, 3)), FEATURES)


def contexts(n: int = 50) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(n, 3))


@pytest.mark.parametrize("reach", [0.0, 0.5, 1.0, 1.2, 3.0])
def test_it_solves_the_linear_program(reach: float) -> None:
    mu, x = Fixed([0.5, 0.3, 0.15, 0.05]), contexts(6)
    scores = scorer().scores(x)
    caps = ratio_caps(mu.action_probs(x), reach)
    probs = BoundedRatio(scorer(), mu, reach).action_probs(x)
    for row in range(len(x)):
        best = linprog(-scores[row], A_eq=np.ones((1, 4)), b_eq=[1.0], bounds=[(0, cap) for cap in caps[row]])
        assert scores[row] @ probs[row] == pytest.approx(-best.fun)
    assert (probs <= caps + 1e-12).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1.0)


def test_the_two_ends() -> None:
    x = contexts()
    mu = Fixed([0.4, 0.3, 0.2, 0.1])
    np.testing.assert_allclose(BoundedRatio(scorer(), mu, 0.0).action_probs(x), mu.action_probs(x))
    sure = Fixed([0.0, 1.0, 0.0, 0.0])
    np.testing.assert_allclose(BoundedRatio(scorer(), sure, 1.0).action_probs(x), sure.action_probs(x))
    greedy = Greedy(scorer()).action_probs(x)
    np.testing.assert_allclose(BoundedRatio(scorer(), UniformPolicy(4), 1.0).action_probs(x), greedy)


def test_a_larger_reach_is_never_worse_in_scores() -> None:
    mu, x = Fixed([0.6, 0.2, 0.15, 0.05]), contexts()
    scores = scorer().scores(x)
    worth = [
        (BoundedRatio(scorer(), mu, reach).action_probs(x) * scores).sum(axis=1)
        for reach in (0.0, 0.7, 1.0, 1.5, 5.0)
    ]
    for less, more in zip(worth[:-1], worth[1:], strict=True):
        assert (more >= less - 1e-12).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.0, 4.0), st.booleans(), st.booleans())
def test_the_form_without_sorting_is_equal(seed: int, reach: float, ties: bool, masked: bool) -> None:
    rng, n, size = np.random.default_rng(seed), 20, 5
    scores = rng.integers(0, 3, (n, size)).astype(float) if ties else rng.normal(size=(n, size))
    mask = rng.random((n, size)) < 0.6
    mask[:, 0] = True
    mask = mask if masked else np.ones_like(mask)
    mu = np.where(mask, rng.dirichlet(np.ones(size), n), 0.0)
    mu /= mu.sum(axis=1, keepdims=True)

    class Table:
        n_actions, width = size, 1

        def scores(self, x):
            return scores

    class Mu:
        n_actions = size

        def action_probs(self, x, candidates=None):
            return mu

    whole = BoundedRatio(Table(), Mu(), reach).action_probs(np.zeros((n, 1)), mask)
    shown = np.where(mask, scores, -np.inf)
    for action in range(size):
        allowed = mask[:, action]
        taken = taken_within(ratio_caps(mu, reach), shown, np.full(n, action))
        np.testing.assert_allclose(taken[allowed], whole[allowed, action], atol=1e-9)


def test_conformance_and_files(tmp_path: Path) -> None:
    policy = BoundedRatio(scorer(), UniformPolicy(4), 0.8)
    check_policy(policy, contexts(30))
    loaded = load_policy(save_policy(policy, tmp_path / "policy"))
    np.testing.assert_array_equal(loaded.action_probs(contexts()), policy.action_probs(contexts()))


@pytest.mark.parametrize("reach", [-0.1, np.nan, np.inf])
def test_bad_reach(reach: float) -> None:
    with pytest.raises(ConfigError, match="a reach of at least 0"):
        BoundedRatio(scorer(), UniformPolicy(4), reach)


def test_other_actions_than_the_scorer_s() -> None:
    with pytest.raises(ConfigError, match="actions"):
        BoundedRatio(scorer(), UniformPolicy(3), 1.0)
