from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import shpi.envs
from shpi.envs.registry import about, make, names
from shpi.envs.rollout import rollout
from shpi.errors import ActionError, ConfigError, EpisodeError
from shpi.policies import UniformPolicy
from tests.envs.test_rollout import Countdown

gymnasium = pytest.importorskip("gymnasium")
from gymnasium.utils.env_checker import check_env  # noqa: E402

from shpi.envs.gym import IDS, SimulatorEnv, SimulatorVectorEnv  # noqa: E402

quiet = pytest.mark.filterwarnings("ignore:.*Box observation space m.*:UserWarning")


@quiet
@pytest.mark.parametrize("identifier", IDS)
def test_gymnasium_accepts_every_environment(identifier: str) -> None:
    env = gymnasium.make(identifier)
    check_env(env.unwrapped, skip_render_check=True)
    simulator = make(IDS[identifier])
    assert env.action_space.n == simulator.n_actions
    assert env.observation_space.shape == (len(simulator.context_names),)


@pytest.mark.parametrize("name", ["synthetic", "storefront"])
def test_episodes_are_the_users_of_the_batch_simulator(name: str) -> None:
    simulator = make(name)
    logs = rollout(simulator, UniformPolicy(simulator.n_actions), 3, seed=5)
    env = SimulatorEnv(name)
    assert logs.rewards is not None
    for episode in range(3):
        observation, _ = env.reset(seed=5 if episode == 0 else None)
        rows = range(logs.offsets[episode], logs.offsets[episode + 1])
        for row in rows:
            assert np.array_equal(observation, logs.contexts[row])
            observation, reward, terminated, truncated, info = env.step(logs.actions[row])
            assert reward == logs.rewards[row]
            last = row == rows[-1]
            assert terminated == (last and logs.terminated[episode])
            assert truncated == (last and not logs.terminated[episode])
            assert isinstance(reward, float)
            assert all(isinstance(value, bool | int | float) for value in info.values())
        assert np.array_equal(observation, logs.final_contexts[episode])
    first, _ = env.reset(options={"user": 1})
    assert np.array_equal(first, logs.contexts[logs.offsets[1]])


def test_parameters_reach_the_simulator() -> None:
    env = gymnasium.make("shpi/Synthetic-v0", d=3, n_actions=4, horizon=2)
    env.reset(seed=0)
    assert env.observation_space.shape == (3,)
    assert env.step(0)[3] is False
    assert env.step(0)[3] is True


def test_masks_are_in_the_info() -> None:
    env = SimulatorEnv(Countdown())
    _, info = env.reset(seed=0, options={"user": 6})
    assert info["action_mask"].dtype == np.int8
    assert info["action_mask"].tolist() == [0, 1, 1]
    info = env.step(1)[4]
    assert info["action_mask"].tolist() == [1, 0, 1]
    with pytest.raises(ActionError, match="among the candidates"):
        env.step(1)
    _, info = SimulatorEnv("storefront").reset(seed=0)
    assert "action_mask" not in info


def test_out_of_order() -> None:
    env = SimulatorEnv(Countdown(masked=False))
    with pytest.raises(EpisodeError, match="one that is over"):
        env.step(0)
    env.reset(seed=0)  # user 0 leaves at once
    assert env.step(0)[2] is True
    with pytest.raises(EpisodeError, match="one that is over"):
        env.step(0)
    env.reset()
    with pytest.raises(ActionError, match="integer"):
        env.step(0.5)
    with pytest.raises(ActionError, match=r"0..2, found 3"):
        env.step(3)
    with pytest.raises(EpisodeError, match="reset before"):
        SimulatorVectorEnv("storefront", num_envs=2).step(np.zeros(2, int))
    with pytest.raises(ConfigError, match="num_envs to be a whole number >= 1"):
        SimulatorVectorEnv("storefront", num_envs=0)


@pytest.mark.parametrize("identifier", ["shpi/Synthetic-v0", "shpi/Storefront-v0"])
def test_make_vec_gives_the_batch_simulator(identifier: str) -> None:
    for mode in (None, "vector_entry_point"):
        envs = gymnasium.make_vec(identifier, num_envs=6, vectorization_mode=mode)
        assert isinstance(envs.unwrapped, SimulatorVectorEnv)
    observations, infos = envs.reset(seed=1)
    assert observations.shape == envs.observation_space.shape
    assert observations in envs.observation_space
    assert infos == {}
    envs.action_space.seed(0)
    observations, rewards, terminated, truncated, _ = envs.step(envs.action_space.sample())
    assert observations in envs.observation_space
    assert rewards.dtype == np.float64
    assert rewards.shape == terminated.shape == truncated.shape == (6,)
    with pytest.raises(ActionError, match=r"shape \(6,\)"):
        envs.step(np.zeros(5, int))


class Recorder:
    """The trajectories of a vector environment, cut at their ends, in the order of their start."""

    def __init__(self, envs: Any, seed: int) -> None:
        self.envs, self.finished = envs, []
        observations, infos = envs.reset(seed=seed)
        self.running = [[observation] for observation in observations]
        self.mask = infos.get("action_mask")

    def run(self, steps: int) -> None:
        over = np.zeros(self.envs.num_envs, bool)
        for t in range(steps):
            actions = np.full(self.envs.num_envs, (t + 1) % 3)
            if self.mask is not None:
                actions = self.mask.argmax(axis=1)
            observations, rewards, terminated, truncated, infos = self.envs.step(actions)
            self.mask = infos.get("action_mask")
            for i in range(self.envs.num_envs):
                if over[i]:
                    assert rewards[i] == 0
                    assert not terminated[i]
                    assert not truncated[i]
                    self.running[i] = [observations[i]]
                else:
                    self.running[i] += [int(actions[i]), float(rewards[i]), observations[i]]
                if terminated[i] or truncated[i]:
                    self.finished.append((self.running[i], bool(terminated[i])))
            over = terminated | truncated


@pytest.mark.parametrize("masked", [True, False])
def test_users_who_end_are_replaced_at_the_next_step(masked: bool) -> None:
    envs = SimulatorVectorEnv(Countdown(masked=masked), num_envs=5)
    recorder = Recorder(envs, seed=0)
    recorder.run(60)
    lengths = [len(trajectory) // 3 for trajectory, _ in recorder.finished]
    assert len(lengths) > 50
    for (trajectory, terminated), length in zip(recorder.finished, lengths, strict=True):
        lifetime = int(trajectory[0][0])  # in the context: how long this user stays
        assert length == min(lifetime, 5)
        assert terminated == (lifetime <= 5)
        assert [observation[1] for observation in trajectory[0::3]] == list(range(length + 1))
        rewards = [10.0 * (t + 1) + action for t, action in enumerate(trajectory[1::3])]
        assert trajectory[2::3] == rewards


def test_vector_users_are_those_of_the_batch_simulator() -> None:
    # Everyone is truncated together, so the second round are the users that follow.
    envs = SimulatorVectorEnv("synthetic", num_envs=4, horizon=5)
    recorder = Recorder(envs, seed=3)
    recorder.run(11)
    assert len(recorder.finished) == 8
    simulator = make("synthetic", horizon=5)
    for first, base in ((0, 0), (4, 6)):
        contexts = simulator.reset(4, 3, first=first)
        for t in range(5):
            step = simulator.step(np.full(4, (base + t + 1) % 3))
            for i in range(4):
                trajectory = recorder.finished[first + i][0]
                assert np.array_equal(trajectory[3 * t], contexts[i].astype(np.float32))
                assert trajectory[3 * t + 2] == step.rewards[i]
            contexts = step.contexts


def test_infos_say_for_whom_they_are_valid() -> None:
    envs = SimulatorVectorEnv(Countdown(masked=False), num_envs=2)
    envs.reset(seed=0)
    infos = envs.step(np.array([1, 0]))[4]
    assert infos["click"].tolist() == [True, False]
    assert infos["_click"].tolist() == [True, True]
    infos = envs.step(np.array([1, 1]))[4]  # user 0 had left: its place is being filled
    assert infos["_click"].tolist() == [False, True]


def test_registry_knows_its_worlds() -> None:
    assert {"synthetic", "synthetic-large", "storefront", "hiv", "recogym"} <= set(names())
    assert all(about(name) for name in names())
    assert make("synthetic-large").n_actions == 300
    assert make("synthetic", tau=3).horizon == 150
    for name in ("synthetic", "synthetic-large", "storefront"):
        assert make(name).name == name


def test_unknown_names_and_parameters_are_listed() -> None:
    with pytest.raises(ConfigError, match=r"one of synthetic, synthetic-large, storefront.*found 'sintetic'"):
        make("sintetic")
    with pytest.raises(ConfigError, match=r"parameters of 'storefront' among max_sessions.*found tau"):
        make("storefront", tau=3)
    with pytest.raises(AttributeError, match="nothing"):
        _ = shpi.envs.nothing
    assert "Synthetic" in dir(shpi.envs)


def test_importing_the_room_registers_and_importing_shpi_stays_light() -> None:
    code = (
        "import sys, shpi; assert 'gymnasium' not in sys.modules and 'shpi.envs' not in sys.modules\n"
        "import shpi.envs, gymnasium; assert 'torch' not in sys.modules\n"
        "print(gymnasium.make('shpi/Storefront-v0').reset(seed=0)[0].shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(7,)"


def test_without_gymnasium_the_room_still_works() -> None:
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "import shpi.envs; print(shpi.envs.make('storefront').n_actions)\n"
        "from shpi.errors import MissingExtraError\n"
        "try:\n    import shpi.envs.gym\nexcept MissingExtraError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("5\n")
    assert "pip install 'shpi[envs]'" in done.stdout
