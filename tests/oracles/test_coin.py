"""The oracle of the authors' release: by hand, and against Vowpal Wabbit where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.oracles import CoinBetting
from shpi.oracles.coin import _compiled, learn_rows
from shpi.policies import EpsilonGreedy, SharedScorer
from shpi.policies.heads import VW_TIES
from shpi.testing import check_policy


def log(scale: float, level: float, n: int = 400, count: int = 5) -> tuple[LoggedData, np.ndarray]:
    rng = np.random.default_rng(0)
    x, a = rng.standard_normal((n, 2)), rng.integers(0, count, n)
    x[::7, 1] = 0.0  # Vowpal Wabbit does not see zeros
    y = scale * (level + 0.3 * x[:, 0] + 0.2 * a + rng.standard_normal(n))
    logs = LoggedData.from_arrays(contexts=x, actions=a, offsets=np.arange(0, n + 1, 10), n_actions=count)
    return logs, y


def test_the_first_two_updates_by_hand() -> None:
    """One action, no slope: y = 1 twice, omega = 1. The stored weight lags one update behind."""
    logs = LoggedData.from_arrays(contexts=np.zeros((2, 1)), actions=[0, 0], offsets=[0, 2], n_actions=1)
    prepared = CoinBetting().prepare(logs, seed=0)
    # row 1: p = 0, g = -2 (costs are -1, so +2 in their sign), L = 2, Z = 2, G = 2, W = 0, N = 2 + 1e-6
    # row 2: w = 4 / (2 (2 + 2)) 2 = 1 in both weights, p = 2 / N = 1: stored is w / N = 1/2 each
    scorer = prepared.fit(np.ones(2))
    np.testing.assert_allclose([scorer.constant[0], scorer.actions[0]], 0.5, rtol=1e-6)
    np.testing.assert_allclose(scorer.scores(np.zeros((1, 1))), [[1.0]], rtol=1e-6)


def test_it_ranks_the_actions_alike_in_every_context() -> None:
    logs, y = log(1.0, 0.0, n=4000)
    prepared = CoinBetting().prepare(logs, seed=0)
    for _ in range(5):
        scorer = prepared.fit(y)
    contexts = np.random.default_rng(1).standard_normal((500, 2)) * 100
    order = np.argsort(scorer.scores(contexts), axis=1)
    assert (order == np.arange(5)).all()
    np.testing.assert_allclose(scorer.slopes, [0.3, 0.0], atol=0.1)


def test_fits_go_on_from_each_other_unless_told_otherwise() -> None:
    logs, y = log(1.0, 0.0)
    kept, fresh = (CoinBetting(keep=keep).prepare(logs, seed=0) for keep in (True, False))
    first, second = kept.fit(y), kept.fit(y)
    assert not np.array_equal(first.actions, second.actions)
    np.testing.assert_array_equal(fresh.fit(y).actions, first.actions)
    np.testing.assert_array_equal(fresh.fit(y).actions, first.actions)


def test_rows_that_are_not_valid_count_as_zero() -> None:
    logs, y = log(1.0, 0.0)
    valid = np.arange(len(logs)) % 10 != 9
    fitted = CoinBetting().prepare(logs, seed=0).fit(np.where(valid, y, np.nan), valid=valid)
    expected = CoinBetting().prepare(logs, seed=0).fit(np.where(valid, y, 0.0))
    np.testing.assert_array_equal(fitted.actions, expected.actions)


def test_compiled_and_plain_updates_are_the_same() -> None:
    pytest.importorskip("numba", reason="needs the extra fast")
    logs, y = log(1000.0, -8.0, n=300)
    states = []
    for update in (learn_rows, _compiled()):
        state, norms, limits = np.zeros((6, 8), np.float32), np.zeros(2), np.zeros(2, np.float32)
        omega = np.full(len(y), 0.2, np.float32)
        update(
            state, norms, limits, logs.contexts, logs.actions.astype(np.int64), y.astype(np.float32), omega
        )
        states.append(state)
    np.testing.assert_allclose(states[0], states[1], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(("scale", "level"), [(1.0, 0.0), (100.0, -50.0), (1000.0, -8.0), (10.0, 1.0)])
def test_equal_to_vowpal_wabbit(scale: float, level: float) -> None:
    """Weights to rounding, and its probabilities, near ties included."""
    pytest.importorskip("vowpalwabbit", reason="needs the extra vw")
    logs, y = log(scale, level)
    ours = CoinBetting().prepare(logs, seed=0)
    wabbit = CoinBetting(engine="vw").prepare(logs, seed=0)
    for factor in (1.0, 1.1, -0.5):
        our_scorer, their_scorer = ours.fit(factor * y), wabbit.fit(factor * y)
        for name in ("constant", "slopes", "actions"):
            weights, expected = getattr(our_scorer, name), getattr(their_scorer, name)
            np.testing.assert_allclose(weights, expected, rtol=0, atol=3e-5 * np.abs(expected).max())
        theirs = np.array([wabbit._memory["model"].pmf(x) for x in logs.contexts[:100]])
        for scorer in (our_scorer, their_scorer):
            probs = EpsilonGreedy(scorer, 0.05, VW_TIES).action_probs(logs.contexts[:100])
            assert (np.abs(probs - theirs).max(axis=1) < 1e-6).mean() >= 0.98


def test_a_large_level_makes_actions_equal() -> None:
    scorer = SharedScorer(constant=[-8000.0], slopes=[1.0], actions=[0.0, 0.5, 3.0])
    policy = EpsilonGreedy(scorer, 0.05, VW_TIES)
    check_policy(policy, np.random.default_rng(0).standard_normal((20, 1)))
    third = 0.95 / 2 + 0.05 / 3
    np.testing.assert_allclose(policy.action_probs(np.zeros((1, 1))), [[0.05 / 3, 0.05 / 3, 1 - 0.1 / 3]])
    far = policy.action_probs(np.full((1, 1), -12_000.0))  # a level of -20,000: 2.5 and 3 are now alike
    assert (far > 0.3).sum() >= 2
    assert far.max() <= third + 1e-12
    assert (EpsilonGreedy(scorer, 0.05).action_probs(np.full((1, 1), -12_000.0))[0, 2]) > 0.95


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match="engine 'own' or 'vw'"):
        CoinBetting(engine="vowpal")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ties in"):
        EpsilonGreedy(SharedScorer(constant=[0.0], slopes=[], actions=[0.0]), 0.1, -1.0)
    with pytest.raises(ConfigError, match="one constant"):
        SharedScorer(constant=[], slopes=[], actions=[0.0])
    logs, y = log(1.0, 0.0)
    with pytest.raises(DataError, match="finite targets"):
        CoinBetting().prepare(logs, seed=0).fit(np.where(y > 0, np.nan, y))
