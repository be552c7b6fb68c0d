"""The release's rows: contexts after the action, windows, differences of rewards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shpi.data._log.release import ReleasedRows, contexts_after, reward_differences, windowed
from shpi.data.logged import LoggedData
from shpi.envs.rollout import rollout
from shpi.envs.synthetic.release import replay
from shpi.envs.synthetic.simulator import Synthetic
from shpi.errors import ConfigError, DataError
from shpi.policies import UniformPolicy


@pytest.fixture(scope="module")
def logs() -> LoggedData:
    return rollout(Synthetic.released(seed=0)[0], UniformPolicy(10), 3, 0)


def test_a_row_holds_what_its_action_led_to(logs: LoggedData) -> None:
    moved = contexts_after(logs)
    for number in range(3):
        rows = slice(logs.offsets[number], logs.offsets[number + 1])
        np.testing.assert_array_equal(moved.contexts[rows][:-1], logs.contexts[rows][1:])
        np.testing.assert_array_equal(moved.contexts[rows][-1], logs.final_contexts[number])
    np.testing.assert_array_equal(moved.actions, logs.actions)
    assert not moved.final_observed.any()


def test_windows_and_differences(logs: LoggedData) -> None:
    view = ReleasedRows()(logs)
    assert view.n_trajectories == 3 * 7  # 1 + floor((150 - 30) / 20)
    assert logs.rewards is not None
    assert view.rewards is not None
    for number, start in enumerate(range(0, 121, 20)):
        rows = slice(30 * number, 30 * number + 30)
        expected = np.diff(logs.rewards[start : start + 30], prepend=logs.rewards[start])
        np.testing.assert_array_equal(view.rewards[rows], expected)
        np.testing.assert_array_equal(view.actions[rows], logs.actions[start : start + 30])
        np.testing.assert_array_equal(view.contexts[rows], logs.next_contexts()[start : start + 30])
        assert view.propensities is not None
    assert list(view.users[:8]) == [0] * 7 + [1]
    plain = ReleasedRows(rewards="level", after=False)(logs)
    np.testing.assert_array_equal(plain.rewards[:30], logs.rewards[:30])  # type: ignore[index]
    np.testing.assert_array_equal(plain.contexts[:30], logs.contexts[:30])


@pytest.mark.parametrize("bias", ["none", "non-stationary"])
def test_windows_of_the_release(golden_dir: Path, bias: str) -> None:
    place = golden_dir / "release" / "toy_release.npz"
    if not place.is_file():
        pytest.skip(f"needs data of the authors' release: no file {place}")
    key = f"d2_A10_s1_{bias.replace('-', '')}_train_"
    with np.load(place, allow_pickle=False) as file:
        golden = {name: file[key + name] for name in ("actions", "win_r_Y", "win_r_diff")}
    run = replay(1, bias=bias)  # type: ignore[arg-type]
    contexts = [run.train.reset_to(run.train_past, run.train_biases)[0]]
    rewards = []
    for action in golden["actions"]:
        step = run.train.step(np.array([action]))
        contexts.append(step.contexts[0])
        rewards.append(step.rewards[0])
    logs = LoggedData.from_arrays(
        contexts=contexts[:-1], final_contexts=contexts[-1:], actions=golden["actions"], rewards=rewards,
        offsets=[0, 150], n_actions=10,
    )  # fmt: skip
    level = np.abs(golden["win_r_Y"]).max()
    for variant, name in (("level", "win_r_Y"), ("difference", "win_r_diff")):
        windows = ReleasedRows(rewards=variant)(logs).rewards  # type: ignore[arg-type]
        np.testing.assert_allclose(windows.reshape(7, 30), golden[name], rtol=0, atol=1e-12 * level)  # type: ignore[union-attr]


def test_short_trajectories_are_left_out(logs: LoggedData) -> None:
    rng = np.random.default_rng(0)
    ragged = LoggedData.from_arrays(
        contexts=rng.standard_normal((45, 1)), actions=np.zeros(45, int), offsets=[0, 5, 25, 45], n_actions=2
    )
    assert windowed(ragged, 10, 10).n_trajectories == 4
    with pytest.raises(DataError, match="at least one trajectory of 30"):
        windowed(ragged, 30, 10)
    with pytest.raises(DataError, match="a log with rewards"):
        reward_differences(replace(logs, rewards=None))
    with pytest.raises(ConfigError, match="rewards 'difference' or 'level'"):
        ReleasedRows(rewards="ratio")  # type: ignore[arg-type]
