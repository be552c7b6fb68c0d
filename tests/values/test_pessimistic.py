from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.features import Identity
from shpi.testing.tabular import TabularMDP
from shpi.values import LSTD, Constant, Pessimistic

BASE = LSTD(features=Identity(intercept=False), ridge=0.1)


def corridor() -> tuple[TabularMDP, np.ndarray]:
    """States 0-2 are common; 3 is reached rarely, 4 never."""
    transition = np.zeros((5, 1, 5))
    transition[:3, 0, :3] = 0.333
    transition[:3, 0, 3] = 0.001
    transition[3:, 0, 0] = 1.0
    mdp = TabularMDP(
        transition=transition,
        reward=np.array([[1.0], [0.0], [-1.0], [0.5], [0.5]]),
        gamma=0.8,
        initial=np.array([1.0, 0, 0, 0, 0]),
        terminal=np.zeros(5, dtype=bool),
        noise=0.5,
    )
    return mdp, np.ones((5, 1))


@pytest.mark.parametrize("method", ["posterior", "ensemble"])
def test_close_where_the_log_is_dense_and_low_where_it_is_thin(method):
    mdp, mu = corridor()
    logs = mdp.log(mu, 200, horizon=50, seed=0, ragged=False)
    visits = logs.contexts.sum(axis=0)
    assert visits[:3].min() > 1_000
    assert 0 < visits[3] < 30
    contexts = mdp.contexts(np.arange(5))
    plain = BASE.fit(logs, gamma=0.8, seed=0)(contexts)
    low = Pessimistic(base=BASE, z=2.0, method=method, members=20).fit(logs, gamma=0.8, seed=0)(contexts)
    gap = plain - low
    assert (gap[:3] < 0.2).all()
    assert gap[3] > 3 * gap[:3].max()
    if method == "posterior":  # members of an ensemble agree where there is no data at all
        assert gap[4] > gap[3]
    assert (low >= logs.rewards.min() / (1 - 0.8) - 1e-12).all()


def test_the_posterior_covers_as_often_as_it_says():
    mdp, mu = corridor()
    truth, contexts, inside = mdp.value(mu), mdp.contexts(np.arange(3)), []
    for seed in range(60):
        logs = mdp.log(mu, 40, horizon=25, seed=seed, ragged=False)
        low = Pessimistic(base=BASE, z=1.0).fit(logs, gamma=0.8, seed=0)
        inside.append(low(contexts) <= truth[:3])
    assert 0.75 < np.mean(inside) < 0.93  # 84 % for one normal standard error


def test_margins_shrink_with_data_and_vanish_for_z_zero():
    mdp, mu = corridor()
    contexts = mdp.contexts(np.arange(3))
    margins = [
        Pessimistic(base=BASE).fit(mdp.log(mu, n, horizon=20, seed=0), gamma=0.8, seed=0).margin(contexts)
        for n in (50, 1_250)
    ]
    np.testing.assert_allclose(margins[0] / margins[1], 5.0, rtol=0.25)
    logs = mdp.log(mu, 50, horizon=20, seed=0)
    none = Pessimistic(base=BASE, z=0.0).fit(logs, gamma=0.8, seed=0)
    one_step = replace(BASE, lookahead=1).fit(logs, gamma=0.8, seed=0)
    np.testing.assert_allclose(none(contexts), one_step(contexts), rtol=1e-12)


def test_the_floor_is_what_rewards_allow():
    mdp, mu = corridor()
    logs = mdp.log(mu, 3, horizon=5, seed=0)
    low = Pessimistic(base=BASE, z=1e9).fit(logs, gamma=0.8, seed=0)
    np.testing.assert_allclose(low(mdp.contexts(np.arange(5))), logs.rewards.min() / 0.2)
    good = replace(logs, rewards=1.0 + logs.rewards**2, terminated=np.ones(3, dtype=bool))
    assert Pessimistic(base=BASE, z=1e9).fit(good, gamma=0.8, seed=0)(mdp.contexts(np.arange(5))).max() == 0.0


def test_an_ensemble_of_constants_is_the_constant():
    mdp, mu = corridor()
    logs = mdp.log(mu, 10, horizon=5, seed=0)
    low = Pessimistic(base=Constant(-0.25)).fit(logs, gamma=0.8, seed=0)
    np.testing.assert_array_equal(low(logs.contexts), -0.25)
