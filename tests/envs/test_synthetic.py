from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shpi.envs.rollout import mean_return, rollout
from shpi.envs.streams import Streams
from shpi.envs.synthetic import simulator as synthetic
from shpi.envs.synthetic.reference import SimpleController, attained_by, kernel, plan
from shpi.envs.synthetic.simulator import PEAK, PEAK_VALUE, Synthetic, landscape
from shpi.errors import ActionError, ConfigError, EpisodeError
from shpi.policies import Mixture, UniformPolicy


def naive(world: Synthetic, n: int, seed: int, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Contexts [T+1, n, d] and rewards [T, n], straight from the definition with Python lists."""
    past = max(world.tau, world.rho)
    streams = Streams(seed, np.arange(n))
    mu = np.zeros((n, world.d))
    mu[np.arange(n), np.floor(streams.uniform(0, 0) * world.d).astype(int)] = -10.0
    w = [mu + streams.normal(1, j, world.d) for j in range(past)]
    a = [np.zeros((n, world.d))] * past
    contexts = [np.mean(w[-world.rho :], axis=0)]
    rewards = []
    for decision in actions:
        a[-1] = world.action_features[decision]  # a_t stands beside W_t
        w.append(np.mean([w[-1 - i] + a[-1 - i] for i in range(world.tau)], axis=0))
        a.append(np.zeros((n, world.d)))
        contexts.append(np.mean(w[-world.rho :], axis=0))
        x = contexts[-1]
        rewards.append(-np.sum(x**4 - 16 * x**2 + 5 * x, axis=1))
    return np.array(contexts), np.array(rewards)


SHAPES: list[dict[str, Any]] = [
    {},
    {"tau": 1, "rho": 1},
    {"tau": 7, "rho": 3, "d": 1},
    {"tau": 3, "rho": 3, "d": 9},
    {"tau": 12, "rho": 13, "d": 3, "n_actions": 4},
    {"tau": 10, "rho": 30, "horizon": 1500, "action_scale": 0.05},
]


@pytest.mark.parametrize("params", SHAPES)
def test_running_sums_equal_the_definition(params: dict[str, Any]) -> None:
    world = Synthetic(**params)
    rng = np.random.default_rng(0)
    actions = rng.integers(0, world.n_actions, (world.horizon, 5))
    contexts, rewards = naive(world, 5, 11, actions)
    observed, earned = [world.reset(5, 11)], []
    for decision in actions:
        step = world.step(decision)
        observed.append(step.contexts)
        earned.append(step.rewards)
    scale = 1 + np.abs(contexts).max()
    assert np.abs(np.array(observed) - contexts).max() < 1e-12 * scale
    assert np.abs(np.array(earned) - rewards).max() < 1e-10 * (1 + np.abs(rewards).max())


def test_rounding_does_not_drift_over_a_very_long_run() -> None:
    # An error of the running sum would be a constant push: quadratic in time. It is bounded by one turn.
    world = Synthetic(horizon=20_000)
    world.reset(3, 0)
    for _ in range(20_000):  # one action and its opposite would do; here action 0 alone, far and fast
        world.step(np.zeros(3, dtype=np.int64))
    run = world._run[0]
    ring = len(run.past)
    window = [run.past[(run.now - i) % ring] for i in range(world.rho)]
    exact = np.array([[np.sort(np.array(window)[:, i, j]).sum() for j in range(2)] for i in range(3)])
    assert np.abs(run.sum_rho / exact - 1).max() < 1e-13
    speed = 2 * world.action_features[0] / (world.tau + 1)
    assert run.past[run.now] / 20_000 == pytest.approx(np.tile(speed, (3, 1)), abs=2e-3)


def test_the_peak_is_where_the_gradient_vanishes() -> None:
    assert abs(4 * PEAK**3 - 32 * PEAK + 5) < 1e-12
    assert landscape(np.array([[PEAK]]))[0] == pytest.approx(PEAK_VALUE, rel=1e-15)
    grid = np.linspace(-12, 12, 24_001)[:, None]
    assert landscape(grid).max() <= PEAK_VALUE
    assert Synthetic().optimum == pytest.approx(156.66, abs=0.01)


@pytest.mark.parametrize("d", [1, 2, 8, 9, 100])
def test_the_landscape_is_the_sum_over_coordinates(d: int) -> None:
    x = np.random.default_rng(0).normal(size=(50, d)) * 4
    expected = -(x**4 - 16 * x**2 + 5 * x).sum(axis=1)
    assert landscape(x) == pytest.approx(expected, rel=1e-12, abs=1e-9)
    single = x.astype(np.float32)
    assert np.array_equal(landscape(single), landscape(single.astype(np.float64)))


@pytest.mark.parametrize("world", [Synthetic(), Synthetic.large(), Synthetic(seed_world=3, action_scale=1.5)])
def test_action_vectors_are_centred_and_scaled(world: Synthetic) -> None:
    vectors = world.action_features
    assert vectors.shape == (world.n_actions, world.d)
    assert np.abs(vectors.mean(axis=0)).max() < 1e-14
    assert np.sqrt(np.square(vectors).mean()) == pytest.approx(world.action_scale / np.sqrt(2))
    assert world.action_features is vectors


def test_starts_have_the_stated_moments() -> None:
    world = Synthetic()
    x = world.reset(20_000, 0)
    special = x.argmin(axis=1)
    assert abs(special.mean() - 0.5) < 4 * 0.5 / np.sqrt(20_000)
    assert abs(x.min(axis=1).mean() + 10) < 4 * np.sqrt(1 / 30 / 20_000)
    assert abs(x.min(axis=1).var() * 30 - 1) < 4 * np.sqrt(2 / 20_000)
    start = landscape(x)
    assert start.mean() == pytest.approx(-8369, abs=25)
    assert start.std() == pytest.approx(670, abs=25)
    assert (world.optimum - start).mean() == pytest.approx(8526, abs=25)


def test_uniform_policy_hardly_improves() -> None:
    world = Synthetic()
    result = mean_return(world, UniformPolicy(10), 4_000, seed=0)
    assert result.scores is not None
    assert -700 < result.mean < -200
    assert result.scores.std() == pytest.approx(3_600, abs=300)
    assert abs(result.mean) / 8526 < 0.09


@pytest.mark.parametrize("seed", range(10))
def test_the_simple_controller_attains_nearly_everything(seed: int) -> None:
    for world in (Synthetic(), Synthetic(seed_world=seed)):
        result = mean_return(world, SimpleController.of(world), 200, seed=seed)
        assert world.fraction_attained().mean() >= 0.98
        assert 8_250 < result.mean < 8_750
        assert np.array_equal(result.scores, world.improvement())


def test_d_100_works_and_is_neither_trivial_nor_hopeless() -> None:
    world = Synthetic.large()
    mean_return(world, UniformPolicy(300), 200, seed=0)
    assert abs(world.fraction_attained().mean()) < 0.1
    assert (world.optimum - world._run[0].start).mean() == pytest.approx(16_160, abs=250)
    mean_return(world, SimpleController.of(world), 200, seed=0)
    assert 0.6 < world.fraction_attained().mean() < 0.8


def test_the_planner_attains_more_than_the_controller() -> None:
    small = Synthetic()
    assert attained_by(small, plan(small, 3, 1, sweeps=20), 1).min() > 0.999
    large = Synthetic.large()
    assert attained_by(large, plan(large, 2, 1, sweeps=10), 1).min() > 0.83


@pytest.mark.parametrize("params", [{}, {"tau": 7, "rho": 3, "d": 3, "horizon": 40}])
def test_the_kernel_predicts_the_last_context(params: dict[str, Any]) -> None:
    world = Synthetic(**params)
    rng = np.random.default_rng(1)
    weights, finals, pushes = kernel(world), [], []
    for _ in range(2):
        actions = rng.integers(0, world.n_actions, (world.horizon, 4))
        world.reset(4, 0)
        finals.append([world.step(decision).contexts for decision in actions][-1])
        pushes.append(np.einsum("t,tnd->nd", weights, world.action_features[actions]))
    assert finals[1] - finals[0] == pytest.approx(pushes[1] - pushes[0], abs=1e-12)


@pytest.mark.parametrize("world", [Synthetic(), Synthetic.biased(horizon=25)])
def test_ten_thousand_at_once_are_ten_times_a_thousand(world: Synthetic) -> None:
    policy = UniformPolicy(10)
    whole = world.rollout(policy, 10_000, seed=7)
    parts = [world.rollout(policy, 1_000, seed=7, first=first) for first in range(0, 10_000, 1_000)]
    for name in ("contexts", "actions", "rewards", "propensities", "final_contexts", "users"):
        joined = np.concatenate([getattr(log, name) for log in parts])
        assert getattr(whole, name).tobytes() == joined.tobytes(), name


def test_batches_of_one_give_the_same_bytes_at_d_100() -> None:
    # Sums over an axis of length one are added up in another order: a trap for n = 1.
    world = Synthetic.large(horizon=35)
    whole = rollout(world, UniformPolicy(300), 5, seed=1)
    single = rollout(world, UniformPolicy(300), 5, seed=1, batch=1)
    assert whole.fingerprint() == single.fingerprint()


def test_the_same_seed_gives_the_same_bytes_and_another_does_not() -> None:
    logs = [Synthetic().rollout(UniformPolicy(10), 20, seed=seed) for seed in (3, 3, 4)]
    assert logs[0].fingerprint() == logs[1].fingerprint() != logs[2].fingerprint()


def test_the_log_says_what_the_simulator_says() -> None:
    world = Synthetic()
    logs = world.rollout(Mixture([SimpleController.of(world), UniformPolicy(10)], [0.7, 0.3]), 300, seed=0)
    assert synthetic.improvement(logs) == pytest.approx(world.improvement(), abs=0.02)
    assert synthetic.fraction_attained(logs) == pytest.approx(world.fraction_attained(), abs=1e-5)
    assert logs.action_space.features is not None
    assert np.array_equal(logs.action_space.features, world.action_features)
    assert set(np.unique(logs.propensities)) == {0.03, 0.73}
    assert not logs.terminated.any()
    assert logs.rewards is not None
    assert logs.rewards == pytest.approx(landscape(logs.next_contexts()), abs=0.5, rel=1e-5)


def test_the_bias_is_constant_for_ten_steps_and_enters_the_logged_reward_alone() -> None:
    policy = UniformPolicy(10)
    plain, biased = Synthetic().rollout(policy, 400, seed=2), Synthetic.biased().rollout(policy, 400, seed=2)
    assert np.array_equal(plain.contexts, biased.contexts)
    assert np.array_equal(plain.actions, biased.actions)
    assert plain.rewards is not None
    assert biased.rewards is not None
    assert np.array_equal(biased.metrics["true_reward"], plain.rewards)
    offset = (biased.rewards - plain.rewards).reshape(400, 15, 10)
    assert np.ptp(offset, axis=2).max() < 1e-9
    draws = offset[:, :, 0].ravel()
    assert abs(draws.mean() - 1e5) < 4 * 1e4 / np.sqrt(6_000)
    assert draws.std() == pytest.approx(1e4, rel=4 / np.sqrt(12_000))
    assert len(np.unique(draws.round(7))) == 6_000
    assert np.array_equal(synthetic.improvement(plain), synthetic.improvement(biased))
    assert biased.with_rewards("true_reward").rewards is not None


def test_contexts_are_float64_and_never_touched_again() -> None:
    world = Synthetic()
    first = world.reset(4, 0)
    kept = first.copy()
    step = world.step(np.zeros(4, int))
    assert step.contexts.dtype == first.dtype == np.float64
    world.step(np.ones(4, int))
    assert np.array_equal(first, kept)
    assert world.candidates() is None
    with pytest.raises(ValueError, match="read-only"):
        step.ended[0] = True


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"d": 0}, "d to be a whole number >= 1, found 0"),
        ({"d": 2.0}, "d to be a whole number"),
        ({"n_actions": 1}, "n_actions to be a whole number >= 2"),
        ({"tau": 0}, "tau to be"),
        ({"rho": -3}, "rho to be"),
        ({"horizon": True}, "horizon to be"),
        ({"seed_world": -1}, "seed_world to be"),
        ({"action_scale": 0.0}, "action_scale to be a finite number > 0"),
        ({"action_scale": float("nan")}, "action_scale"),
        ({"action_scale": "big"}, "action_scale"),
        ({"reward_offset": (1.0,)}, "reward_offset to be .mean, standard deviation., or None"),
        ({"reward_offset": (1e5, -1.0)}, "the standard deviation of reward_offset"),
        ({"offset_every": 0}, "offset_every to be"),
    ],
)
def test_nonsense_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Synthetic(**params)


def test_configuration_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Synthetic().d = 3  # type: ignore[misc]


def test_bad_use() -> None:
    world = Synthetic(horizon=2)
    with pytest.raises(EpisodeError, match="reset before"):
        world.step(np.zeros(1, int))
    with pytest.raises(EpisodeError, match="reset before"):
        world.improvement()
    with pytest.raises(ConfigError, match="n to be a whole number >= 1, found 0"):
        world.reset(0, 0)
    world.reset(3, 0)
    with pytest.raises(ActionError, match=r"shape \(3,\)"):
        world.step(np.zeros((3, 1), int))
    with pytest.raises(ActionError, match="integer"):
        world.step(np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(ActionError, match=r"0..9, found 10 \(row 2\)"):
        world.step(np.array([0, 1, 10]))
    world.step(np.zeros(3, int))
    world.step(np.zeros(3, int))
    with pytest.raises(EpisodeError, match="at most 2 decisions"):
        world.step(np.zeros(3, int))
