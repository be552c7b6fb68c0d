from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.data.schema import ContextSchema
from shpi.errors import ConfigError, DataError
from shpi.features import Identity, OneHot, Powers, RandomFourier
from shpi.testing.tabular import random_mdp
from shpi.values import LSTD, LstdSums, solve

TABULAR = LSTD(features=Identity(intercept=False), ridge=1e-3)  # one-hot contexts are the features


def log_of(rewards, contexts, **changes) -> LoggedData:
    n = len(rewards)
    arrays = {
        "contexts": np.asarray(contexts, dtype=float),
        "actions": np.zeros(n, dtype=int),
        "rewards": rewards,
        "offsets": [0, n],
        "n_actions": 2,
    }
    return LoggedData.from_arrays(**(arrays | changes))


# ---------------------------------------------------------------------- truth


@pytest.mark.parametrize("seed", [0, 1])
def test_converges_to_the_exact_value_like_one_over_root_n(seed):
    mdp = random_mdp(8, 3, seed=seed, gamma=0.9, n_terminal=1, noise=0.5)
    mu = mdp.random_policy(seed + 10)
    truth, live = mdp.value(mu), ~mdp.terminal
    contexts = mdp.contexts(np.arange(8))
    errors = []
    for n in (500, 8_000):
        runs = [
            TABULAR.fit(mdp.log(mu, n, horizon=15, seed=r), gamma=0.9, seed=0)(contexts) - truth
            for r in range(6)
        ]
        errors.append(np.sqrt(np.mean(np.square(runs)[:, live])))
    assert errors[1] < 0.06  # rewards have a spread of about 1
    assert 0.15 < errors[1] / errors[0] < 0.4  # 1/4 in theory


def test_the_number_of_the_state_as_context_works_too():
    mdp = random_mdp(6, 2, seed=3, gamma=0.8, encoding="index")
    mu = mdp.random_policy(1)
    model = LSTD(features=OneHot(n_states=6), ridge=1e-3)
    value = model.fit(mdp.log(mu, 4_000, horizon=10, seed=0), gamma=0.8, seed=0)
    np.testing.assert_allclose(value(mdp.contexts(np.arange(6))), mdp.value(mu), atol=0.15)


def test_terminated_truncated_and_unobserved_ends_in_closed_form():
    rewards, states, g = [1.0, 2.0], np.eye(2), 0.5
    exact = LSTD(features=Identity(intercept=False), ridge=1e-9)
    ended = exact.fit(log_of(rewards, states, terminated=[True]), gamma=g, seed=0)
    np.testing.assert_allclose(ended(states), [1 + g * 2, 2.0], rtol=1e-6)
    again = exact.fit(log_of(rewards, states, final_contexts=states[:1]), gamma=g, seed=0)
    first = (1 + g * 2) / (1 - g**2)  # 0 -> 1 -> 0 -> …
    np.testing.assert_allclose(again(states), [first, 2 + g * first], rtol=1e-6)
    hidden = log_of([1.0, 2.0, 7.0], states[[0, 1, 0]])  # what follows the third decision is not known
    np.testing.assert_allclose(exact.fit(hidden, gamma=g, seed=0)(states), again(states), rtol=1e-6)


def test_a_censored_reward_is_left_out():
    logs = log_of([1.0, 2.0, 99.0], np.eye(2)[[0, 1, 0]], final_contexts=np.eye(2)[:1])
    marked = replace(logs, reward_observed=np.array([True, True, False]))
    sums = LstdSums.of(marked, Identity(intercept=False).fit(logs.contexts), gamma=0.9)
    assert sums.n == 2
    assert sums.square == 5.0


def autoregressive(seed: int, d: int, n: int = 150, horizon: int = 100, gamma: float = 0.95):
    """x' = 0.9 x + noise with a quadratic reward: V is quadratic, in closed form."""
    rng = np.random.default_rng(seed)
    a, curve, slope = 0.9, rng.normal(size=d), rng.normal(size=d)
    x = [rng.normal(size=(n, d))]
    for _ in range(horizon):
        x.append(a * x[-1] + np.sqrt(1 - a * a) * rng.normal(size=(n, d)))
    path = np.stack(x, axis=1)
    flat = path[:, :-1].reshape(-1, d)
    logs = log_of(
        (curve * flat**2 + slope * flat).sum(axis=1) + 0.5 * rng.normal(size=len(flat)),
        flat,
        offsets=np.arange(n + 1) * horizon,
        final_contexts=path[:, -1],
    )

    def truth(x):
        square = 1 / (1 - gamma * a * a)
        level = curve.sum() * (1 / (1 - gamma) - square)
        return (curve * x**2 * square + slope * x / (1 - gamma * a)).sum(axis=1) + level

    return logs, truth


def test_default_features_are_chosen_well_in_few_and_many_dimensions():
    for d, worst in ((2, 0.12), (12, 0.25)):
        logs, truth = autoregressive(0, d)
        value = LSTD().fit(logs, gamma=0.95, seed=0)
        error = value(logs.contexts) - truth(logs.contexts)
        assert error.std() < worst * truth(logs.contexts).std()


def test_cross_validation_takes_curved_features_where_the_value_is_curved():
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.normal(size=(100, 61)), axis=1) * 0.5
    flat = x[:, :-1].reshape(-1, 1)
    logs = log_of(np.cos(2 * flat[:, 0]), flat, offsets=np.arange(101) * 60, final_contexts=x[:, -1:])
    chosen = LSTD().choose(logs, gamma=0.9, seed=0)
    assert chosen.features.width == 200  # random Fourier, not linear, quadratic or a few hinges
    line = replace(logs, rewards=flat[:, 0])
    assert LSTD().choose(line, gamma=0.9, seed=0).features.width < 10


# ---------------------------------------------------------------------- identities


def test_sums_are_additive_over_shards_in_any_order():
    mdp = random_mdp(6, 3, seed=0, n_terminal=1)
    logs = mdp.log(mdp.random_policy(1), 600, horizon=9, seed=0)
    model = LSTD(features=RandomFourier(n_features=40, seed=1))
    choice = model.choose(logs, gamma=0.9, seed=0)
    whole = model.sums(logs, choice, gamma=0.9)
    order = np.random.default_rng(0).permutation(logs.n_trajectories)
    shards = [
        model.sums(logs.select(trajectories), choice, gamma=0.9) for trajectories in np.array_split(order, 7)
    ]
    for name in ("gram", "cross", "target"):
        total = sum(getattr(shard, name) for shard in shards)
        np.testing.assert_allclose(total, getattr(whole, name), rtol=1e-10, atol=1e-10)
    from_whole, from_shards = solve([whole], choice), solve(shards, choice)
    np.testing.assert_allclose(from_shards(logs.contexts), from_whole(logs.contexts), rtol=1e-8)


def test_blocks_do_not_show(monkeypatch):
    mdp = random_mdp(5, 2, seed=0, n_terminal=1)
    logs = mdp.log(mdp.random_policy(1), 400, horizon=9, seed=0)
    features = Identity(intercept=False).fit(logs.contexts)
    whole = LstdSums.of(logs, features, gamma=0.9, lookahead=5)
    monkeypatch.setattr("shpi.values._lstd.moments._ENTRIES", 1)  # 256 rows each
    parts = LstdSums.of(logs, features, gamma=0.9, lookahead=5)
    assert len(logs) > 3 * 256
    np.testing.assert_allclose(parts.cross, whole.cross, rtol=1e-12)
    np.testing.assert_allclose(parts.gram, whole.gram, rtol=1e-12)


def test_the_same_seed_gives_the_same_value_and_rewards_only_scale_it():
    logs, _ = autoregressive(1, 2, n=40)
    first, second = (LSTD().fit(logs, gamma=0.95, seed=5)(logs.contexts) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    large = LSTD().fit(replace(logs, rewards=1e12 * logs.rewards), gamma=0.95, seed=5)(logs.contexts)
    np.testing.assert_allclose(large, 1e12 * first, rtol=1e-6)


def test_equal_rewards_and_identical_contexts_give_the_constant():
    logs, _ = autoregressive(1, 3, n=20)
    flat = LSTD().fit(replace(logs, rewards=np.full(len(logs), 3.0)), gamma=0.9, seed=0)
    np.testing.assert_allclose(flat(logs.contexts), 30.0, rtol=1e-6)
    same = log_of(
        logs.rewards, np.full((len(logs), 2), 7.0), offsets=logs.offsets, final_contexts=np.full((20, 2), 7.0)
    )
    for model in (
        LSTD(lookahead=1),
        LSTD(features=Powers(degree=2, intercept=False), ridge=0.0, lookahead=1),
    ):
        value = model.fit(same, gamma=0.9, seed=0)(same.contexts)
        np.testing.assert_allclose(value, logs.rewards.mean() / 0.1, rtol=1e-5)


def test_a_value_of_user_features_alone():
    logs, _ = autoregressive(2, 3, n=30)
    levels = replace(logs, schema=ContextSchema.numeric(["a", "b", "c"], ["session", "user", "session"]))
    value = LSTD(level="user").fit(levels, gamma=0.9, seed=0)
    other = logs.contexts.copy()
    other[:, [0, 2]] = 100.0
    np.testing.assert_array_equal(value(other), value(logs.contexts))
    assert value(logs.contexts).std() > 0.1
    with pytest.raises(ConfigError, match="level 'user'"):
        LSTD(level="user").fit(logs, gamma=0.9, seed=0)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_tiny_logs_work(n):
    logs = log_of(np.arange(n, dtype=float), np.arange(n, dtype=float)[:, None], final_contexts=[[1.0]])
    assert np.isfinite(LSTD().fit(logs, gamma=0.9, seed=0)(logs.contexts)).all()


# ---------------------------------------------------------------------- bad input


def test_nothing_to_learn_from():
    with pytest.raises(DataError, match="next context"):
        LSTD(ridge=1.0).fit(log_of([1.0], [[0.0]]), gamma=0.9, seed=0)


def test_bad_settings():
    logs = log_of([1.0], [[0.0]], terminated=[True])
    for gamma in (1.0, -0.1, float("nan")):
        with pytest.raises(ConfigError, match="gamma"):
            LSTD().fit(logs, gamma=gamma, seed=0)
    with pytest.raises(ConfigError, match="ridge"):
        LSTD(ridge=-1.0)
    with pytest.raises(ConfigError, match="folds"):
        LSTD(folds=1)
    with pytest.raises(DataError, match="backshift"):
        LSTD().fit(replace(logs, rewards=None), gamma=0.9, seed=0)
    with pytest.raises(ConfigError, match="fit the feature map once"):
        _ = LstdSums.of(logs, Identity().fit(logs.contexts), gamma=0.9) + LstdSums.of(
            logs, Powers(degree=3).fit(logs.contexts), gamma=0.9
        )
