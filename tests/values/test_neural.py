from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi._torch.adam import Adam
from shpi._torch.networks import one_thread
from shpi._torch.perceptron import Perceptron, perceptrons
from shpi.errors import DataError
from shpi.testing.tabular import TabularMDP, random_mdp
from shpi.theory import bellman_residual_minimiser
from shpi.values import LSTD, BellmanResidual, FittedTD
from shpi.values.neural.descent import write_residual_gradient, write_td_gradient

SMALL = {"hidden": (32,), "steps": 800, "learning_rate": 5e-3}


def slope(fitted, truth, weights):
    centred, target = fitted - weights @ fitted, truth - weights @ truth
    return float(weights @ (centred * target) / (weights @ target**2))


def world(seed: int) -> tuple[TabularMDP, np.ndarray]:
    mdp = random_mdp(10, 3, seed=seed, gamma=0.9)
    return mdp, mdp.random_policy(seed + 1)


def test_the_bellman_residual_is_biased_even_with_infinite_data_and_td_is_not():
    slopes = []
    for seed in range(5):
        mdp, mu = world(seed)
        d = mdp.occupancy(mu, horizon=50)
        slopes.append(slope(bellman_residual_minimiser(mdp, mu, d), mdp.value(mu), d))
    assert max(slopes) < 0.75
    assert min(slopes) > 0.1


def test_the_bias_vanishes_where_nothing_is_random():
    mdp = random_mdp(10, 3, seed=0, gamma=0.9, branching=1)
    mu = np.eye(3)[np.zeros(10, dtype=int)]
    uniform = np.full(10, 0.1)
    np.testing.assert_allclose(bellman_residual_minimiser(mdp, mu, uniform), mdp.value(mu), rtol=1e-6)


def test_trained_networks_show_the_same():
    mdp, mu = world(0)
    logs = mdp.log(mu, 300, horizon=50, seed=0, ragged=False)
    d = mdp.occupancy(mu, horizon=50)
    contexts, truth = mdp.contexts(np.arange(10)), mdp.value(mu)
    residual = BellmanResidual(**SMALL).fit(logs, gamma=0.9, seed=0)(contexts)
    semi = FittedTD(**SMALL, refit=False).fit(logs, gamma=0.9, seed=0)(contexts)
    refit = FittedTD(**SMALL).fit(logs, gamma=0.9, seed=0)(contexts)
    lstd = LSTD().fit(logs, gamma=0.9, seed=0)(contexts)
    expected = slope(bellman_residual_minimiser(mdp, mu, d), truth, d)
    assert slope(residual, truth, d) == pytest.approx(expected, abs=0.12)
    assert slope(residual, truth, d) < 0.75
    for value in (semi, refit, lstd):
        assert slope(value, truth, d) == pytest.approx(1.0, abs=0.2)
        assert np.sqrt(d @ (value - truth) ** 2) < 0.35 * np.sqrt(d @ (truth - d @ truth) ** 2)


def test_the_level_and_the_scale_of_rewards_need_no_training():
    mdp, mu = world(1)
    logs = mdp.log(mu, 100, horizon=20, seed=0, ragged=False)
    far = replace(logs, rewards=1e6 * (logs.rewards + 50.0))
    options = {"hidden": (16,), "steps": 200, "refit": False}
    near = FittedTD(**options).fit(logs, gamma=0.9, seed=0)(logs.contexts)
    value = FittedTD(**options).fit(far, gamma=0.9, seed=0)(logs.contexts)
    np.testing.assert_allclose(value / 1e6, near + 500.0, rtol=0.02)
    same = replace(logs, rewards=np.full(len(logs), 2.0))
    flat = FittedTD(**options).fit(same, gamma=0.9, seed=0)(logs.contexts)
    np.testing.assert_allclose(flat, 20.0, rtol=0.05)


def test_terminations_are_worth_nothing():
    mdp = random_mdp(6, 2, seed=2, gamma=0.95, n_terminal=2)
    mdp = replace(mdp, reward=np.where(mdp.terminal[:, None], 0.0, 1.0 + 0.0 * mdp.reward))
    mu = mdp.random_policy(0)
    logs = mdp.log(mu, 1_000, horizon=20, seed=0)
    live = mdp.contexts(np.arange(4))
    for model in (FittedTD(**SMALL), FittedTD(**SMALL, refit=False)):
        fitted = model.fit(logs, gamma=0.95, seed=0)(live)
        np.testing.assert_allclose(fitted, mdp.value(mu)[:4], rtol=0.15)


def test_nothing_to_learn_from():
    mdp, mu = world(0)
    logs = mdp.log(mu, 1, horizon=1, seed=0, ragged=False)
    with pytest.raises(DataError, match="next context"):
        FittedTD(hidden=(4,), steps=1).fit(replace(logs, final_observed=np.array([False])), gamma=0.9, seed=0)


@pytest.mark.parametrize("refresh", [False, True])
def test_the_gradients_by_hand_are_those_of_the_printed_losses(refresh: bool) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    values, (net,) = perceptrons(torch, (3, 16, 8, 1), 1, rng)
    both, rewards, discounts = (
        torch.from_numpy(array.astype(np.float32))
        for array in (rng.standard_normal((14, 3)), rng.standard_normal(7), rng.choice([0.0, 0.9], 7))
    )
    target = net.copy()
    target.values.mul_(2.0)
    with torch.no_grad():
        if refresh:
            write_td_gradient(net, target, both, rewards, discounts)
        else:
            write_residual_gradient(torch, net, both, rewards, discounts)

    free = values.detach().clone().requires_grad_()
    w0, b0, w1, b1, w2, b2 = Perceptron(torch, net.sizes, free).layers

    def v(x: object) -> object:
        return (torch.relu(torch.relu(x @ w0 + b0) @ w1 + b1) @ w2 + b2)[:, 0]

    ahead = target(both[7:])[:, 0] if refresh else v(both[7:])
    torch.mean((rewards + discounts * ahead - v(both[:7])) ** 2).backward()
    torch.testing.assert_close(values.grad, free.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("before", [False, True])
def test_numbers_that_slow_the_processor_down_are_zero_while_a_network_learns(before):
    torch = pytest.importorskip("torch", reason="needs the extra neural")
    if not torch.set_flush_denormal(before):
        pytest.skip("this processor cannot do it")

    def small() -> float:
        return float(torch.tensor(1e-40) * 1.0)

    try:
        outside = small()
        with one_thread():
            assert small() == 0.0
        assert small() == outside
        assert (outside == 0.0) == before
    finally:
        torch.set_flush_denormal(False)


def test_adam_gives_the_bits_of_torch():
    torch = pytest.importorskip("torch", reason="needs the extra neural")
    random = torch.Generator().manual_seed(0)
    start = torch.randn(1000, generator=random)
    ours, theirs = start.clone(), start.clone()
    for values in (ours, theirs):
        values.grad = torch.zeros_like(values)
    pair = Adam(torch, ours, 1e-2), torch.optim.Adam([theirs], lr=1e-2, fused=True)
    with torch.no_grad():
        for _ in range(200):
            slope = torch.randn(1000, generator=random) * (start > 0)
            for values, adam in zip((ours, theirs), pair, strict=True):
                values.grad.copy_(slope)
                adam.step()
    assert torch.equal(ours, theirs)
    assert not torch.equal(ours, start)
