"""Online SHPI against exact answers: the storefront's values, closed forms of the bonus, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.envs.storefront import Storefront
from shpi.errors import ConfigError, DataError
from shpi.features import Identity
from shpi.learners import OfflineSHPI, OnlineSHPI
from shpi.learners.online._local_scale import local_scale
from shpi.learners.online._steady import Scaled, Steady
from shpi.learners.online.rounds import Measured, best_round, pooled
from shpi.policies import UniformPolicy
from shpi.protocols import Policy
from shpi.testing import check_online_learner, check_policy
from shpi.testing.tabular import OneHotPolicy
from shpi.values import LSTD, Constant, Given, StateValues


@pytest.fixture(scope="module")
def shop() -> Storefront:
    return Storefront()


def exact(shop: Storefront, policy: Policy) -> float:
    return shop.exact_value(policy.action_probs(shop.contexts))


def measured(*means: float, error: float = 0.1) -> list[Measured]:
    return [Measured(mean=mean, error=error, users=10) for mean in means]


# ---------------------------------------------------------------------- what is learned


@pytest.mark.parametrize("episodes", [40, 150])
def test_a_small_budget_never_ends_below_the_start(shop: Storefront, episodes: int) -> None:
    start = shop.exact_value(shop.uniform())
    for seed in range(4):
        policy = OnlineSHPI(episodes=episodes, seed=seed).fit(shop)
        assert exact(shop, policy) > start


def test_more_users_lead_well_beyond_the_best_bandit(shop: Storefront) -> None:
    policy = OnlineSHPI(episodes=500, seed=0).fit(shop)
    check_policy(policy.policy, shop.contexts)
    assert exact(shop, policy) > 1.3 * shop.exact_value(shop.bandit())
    gains = [iteration.gain for iteration in policy.history if iteration.gain is not None]
    assert len(gains) == len(policy.history)
    assert gains[policy.chosen - 1].estimate > 0


def test_an_optimal_start_is_kept_but_for_noise(shop: Storefront) -> None:
    best = shop.exact_value(shop.optimal())
    start = _table_policy(shop, shop.optimal())
    for seed in range(3):
        policy = OnlineSHPI(episodes=120, seed=seed, epsilon=(0.2, 0.0)).fit(shop, start=start)
        assert exact(shop, policy) > 0.75 * best


def test_the_hybrid_setting_starts_from_the_offline_policy_and_learns_from_the_log(shop: Storefront) -> None:
    logs = shop.rollout(UniformPolicy(shop.n_actions), 150, seed=1)
    offline = OfflineSHPI(k=3, seed=0).fit(logs)
    online = OnlineSHPI(episodes=200, epsilon=(0.2, 0.0), seed=0)
    hybrid = online.fit(shop, start=offline, value=offline.value, logs=logs)
    assert exact(shop, hybrid) >= exact(shop, offline)


def test_conformance() -> None:
    check_online_learner(OnlineSHPI(episodes=100, batch_users=25, seed=3))


def test_the_paper_s_configuration_runs_and_returns_the_last_policy(shop: Storefront) -> None:
    policy = OnlineSHPI.paper(episodes=100, value=LSTD(features=Identity(), ridge=1.0)).fit(shop)
    assert policy.chosen == len(policy.history) == 2


# ---------------------------------------------------------------------- its parts


def test_advantages_are_equation_2(shop: Storefront) -> None:
    tau = shop.rollout(UniformPolicy(shop.n_actions), 20, seed=2)
    learner, value = OnlineSHPI(k=3, gamma=0.9), Given(lambda x: 1.0 + np.asarray(x).sum(axis=1))
    advantages = learner._advantages(tau, value)
    state = StateValues.of(value, tau)
    assert tau.rewards is not None
    for i, (start, end) in enumerate(zip(tau.offsets[:-1], tau.offsets[1:], strict=True)):
        after = np.append(state.rows[start:end], 0.0 if tau.terminated[i] else state.final[i])
        for t in range(end - start):
            stop = min(t + 3, end - start)
            gains = sum(0.9**m * tau.rewards[start + t + m] for m in range(stop - t))
            truth = gains + 0.9 ** (stop - t) * after[stop] - after[t]
            assert advantages.values[start + t] == pytest.approx(truth)


def test_rounds_share_all_users_and_exploration_falls() -> None:
    learner = OnlineSHPI(episodes=203, batch_users=50, epsilon=(0.4, 0.0))
    rounds = list(learner._rounds())
    assert [first for _, first, _ in rounds] == [0, 50, 101, 152]
    assert sum(n for *_, n in rounds) == 203
    shares = [
        learner._exploring(OneHotPolicy(np.eye(4)), j).action_probs(np.eye(4))[0, 1] for j in range(1, 5)
    ]
    np.testing.assert_allclose(shares, np.array([0.4, 0.8 / 3, 0.4 / 3, 0.0]) / 4, atol=1e-12)
    assert len(list(OnlineSHPI(episodes=20, batch_users=50)._rounds())) == 4  # a small budget keeps rounds


def test_the_latest_policy_within_noise_is_kept_unless_the_start_measured_better() -> None:
    assert best_round(measured(1.0, 2.0, 1.95, 1.5)) == 2
    assert best_round(measured(1.0, 2.0, 1.5, 1.0)) == 1
    assert best_round(measured(2.0, 1.95, 1.99)) == 0  # within noise, but nothing shows a gain
    assert best_round(measured(1.0, 1.0)) == 1


def _users(contexts: np.ndarray, rewards: np.ndarray, steps: int) -> LoggedData:
    n = len(contexts) // (steps + 1)
    whole = contexts.reshape(n, steps + 1, 1)
    return LoggedData.from_arrays(
        contexts=whole[:, :-1].reshape(-1, 1),
        final_contexts=whole[:, -1],
        final_observed=np.ones(n, dtype=bool),
        terminated=np.zeros(n, dtype=bool),
        actions=np.zeros(n * steps, dtype=np.int64),
        rewards=rewards.reshape(n, steps + 1)[:, :-1].ravel(),
        offsets=np.arange(0, n * steps + 1, steps),
        n_actions=2,
    )


@pytest.mark.parametrize(("stay", "slope"), [(True, 10.0), (False, 1.0)])
def test_the_slope_of_the_bonus_is_that_of_the_true_value(stay: bool, slope: float) -> None:
    # r = x. Users who stay as they are: V_g = x / (1-g). Users drawn anew at each step: V_g = x + constant.
    rng, steps, n = np.random.default_rng(0), 40, 200
    x = np.repeat(rng.normal(size=n), steps + 1) if stay else rng.normal(size=n * (steps + 1))
    x = x.astype(np.float32)
    model = LSTD(features=Identity(intercept=False), ridge=0.0)
    value = Steady(model=model).fit(_users(x, x.astype(float), steps), gamma=0.99, seed=0)
    short = 10.0 if stay else 1.0  # dV_0.9 / dx
    rise = np.diff(value(np.array([[0.0], [1.0]])))[0]
    assert rise == pytest.approx(slope * short, rel=0.05 if stay else 0.3)
    level = value(np.array([[0.0]]))[0]
    assert level == pytest.approx(0.0 if stay else x.mean() / 0.01, abs=2.5)


def test_the_bonus_of_any_model_is_scaled() -> None:
    x = np.random.default_rng(0).normal(size=410).astype(np.float32)
    given = Given(lambda c: 10.0 * np.asarray(c)[:, 0])
    value = Steady(model=given).fit(
        _users(np.repeat(x[:10], 41), np.repeat(x[:10], 41), 40), gamma=0.99, seed=0
    )
    assert isinstance(value, Scaled)
    assert value.slope == pytest.approx(10.0, rel=0.05)
    assert Steady(model=Constant(3.0), discount=0.5).fit(
        _users(x, np.ones(410), 40), gamma=0.5, seed=0
    )(x[:, None])[0] == 3.0  # fmt: skip


def test_local_scale_finds_where_advantages_are_large() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (4000, 1)).astype(np.float32)
    true = np.exp(2.0 * x[:, 0])
    scale = local_scale(x, true * rng.normal(size=4000), np.ones(4000, dtype=bool), seed=0)
    ratio = scale / true
    assert np.std(np.log(ratio)) < 0.15
    np.testing.assert_array_equal(local_scale(x, np.zeros(4000), np.ones(4000, dtype=bool), seed=0), 1.0)


def test_gymnasium_environments_are_worlds() -> None:
    gym = pytest.importorskip("gymnasium")

    class Lights(gym.Env):  # type: ignore[misc,name-defined]
        """Two lights; the action that names the one that is on earns 1; five steps."""

        observation_space = gym.spaces.Discrete(2)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
            super().reset(seed=seed)
            self.step_number, self.light = 0, int(self.np_random.integers(2))
            return self.light, {}

        def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
            reward = float(action == self.light)
            self.step_number, self.light = self.step_number + 1, int(self.np_random.integers(2))
            return self.light, reward, False, self.step_number == 5, {}

    policy = OnlineSHPI(k=2, episodes=60, batch_users=15, seed=0).fit(Lights())
    np.testing.assert_array_equal(policy.action_probs(np.eye(2, dtype=np.float32)).argmax(axis=1), [0, 1])


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"episodes": 7}, "at least 8 episodes"),
        ({"episodes": 40, "keep": "last"}, "at least 50 episodes"),
        ({"batch_users": 1}, "batch_users of at least 2"),
        ({"epsilon": 1.5}, "epsilon in"),
        ({"epsilon": (0.2, -0.1)}, "epsilon in"),
        ({"memory": 0}, "memory of at least 1"),
        ({"value_memory": 0}, "value_memory of at least 1"),
        ({"keep": "first"}, "keep 'best' or 'last'"),
        ({"k": 0}, "k to be an int"),
        ({"gamma": 1.0}, "gamma in"),
    ],
)
def test_bad_settings_say_what_is_expected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OnlineSHPI(**settings)


def test_bad_steady_settings() -> None:
    with pytest.raises(ConfigError, match="discount in"):
        Steady(discount=1.0)
    with pytest.raises(ConfigError, match="lookahead of at least 1"):
        Steady(lookahead=0)


def test_a_start_or_a_log_of_another_world_is_refused(shop: Storefront) -> None:
    with pytest.raises(ConfigError, match="a start policy over the world's 5 actions"):
        OnlineSHPI(episodes=40).fit(shop, start=UniformPolicy(3))
    with pytest.raises(ConfigError, match="a simulator"):
        OnlineSHPI(episodes=40).fit(object())
    logs = _users(np.zeros(82, dtype=np.float32), np.zeros(82), 40)
    with pytest.raises(DataError, match="describe users as the world does"):
        pooled([logs, shop.rollout(UniformPolicy(5), 3, seed=0)])


class _Broken:
    n_actions = 2

    def rollout(self, policy: Policy, n: int, seed: int, *, first: int = 0) -> LoggedData:
        rewards = np.zeros(n * 41)
        rewards[7] = np.nan
        return _users(np.zeros(n * 41, dtype=np.float32), rewards, 40)


def test_a_world_that_returns_nan_is_named() -> None:
    with pytest.raises(DataError, match="_Broken, users 0"):
        OnlineSHPI(episodes=40).fit(_Broken())


def _table_policy(shop: Storefront, table: np.ndarray) -> Policy:
    class Table:
        n_actions = shop.n_actions

        def action_probs(self, contexts: Any, candidates: Any = None) -> Any:
            gap = ((np.asarray(contexts)[:, None, :] - shop.contexts[None]) ** 2).sum(axis=2)
            return table[gap.argmin(axis=1)]

    return Table()  # type: ignore[return-value]
