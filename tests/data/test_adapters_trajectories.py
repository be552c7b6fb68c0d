"""from_episodes, Minari and d3rlpy: everything that a log knows survives the way there and back."""

from __future__ import annotations

from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shpi.data._log.ledger import Drop, Ledger
from shpi.data.actions import ActionSpace
from shpi.data.adapters import from_episodes, from_minari, to_d3rlpy, to_episodes, to_minari
from shpi.data.adapters.d3rlpy import mdp_arrays
from shpi.data.logged import LoggedData
from shpi.data.schema import ContextSchema, Feature
from shpi.errors import ActionError, ConfigError, DataError


def random_log(
    seed: int, *, full: bool = True, users: str = "text", lengths: tuple[int, ...] = (3, 1, 5)
) -> LoggedData:
    rng = np.random.default_rng(seed)
    n, total, count = sum(lengths), len(lengths), 4
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    inner = set(rng.choice(np.arange(1, n), size=min(2, n - 1), replace=False).tolist()) if n > 1 else set()
    behaviour = rng.dirichlet(np.ones(count), size=n) * 0.8 + 0.05
    actions = rng.integers(count, size=n)
    candidates = rng.random((n, count)) < 0.7
    candidates[np.arange(n), actions] = True
    extra: dict[str, Any] = {}
    if full:
        extra = {
            "behaviour": behaviour,
            "propensities": behaviour[np.arange(n), actions],
            "candidates": candidates,
            "final_candidates": rng.random((total, count)) < 0.9,
            "metrics": {"click": rng.integers(2, size=n), "watch time": rng.random(n)},
            "terminated": rng.random(total) < 0.5,
            "session_offsets": sorted({*offsets.tolist(), *inner}),
            "times": np.concatenate(
                [1_650_000_000_000_000 + np.sort(rng.integers(10**12, size=m)) for m in lengths]
            ),
            "time_unit": "us",
            "action_space": ActionSpace(
                ids=("a", "b", "c", "d"), features=rng.random((count, 2)), feature_names=("f", "g")
            ),
            "schema": ContextSchema(
                features=(
                    Feature(name="age", level="user"),
                    Feature(name="kind", kind="categorical", categories=("x",)),
                )
            ),
        }
    labels = {"text": [f"user {i % 2}" for i in range(total)], "numbers": [7 * i for i in range(total)]}
    logs = LoggedData.from_arrays(
        contexts=rng.normal(size=(n, 3)),
        final_contexts=rng.normal(size=(total, 3)),
        final_observed=rng.random(total) < 0.5,
        actions=actions,
        rewards=rng.normal(size=n),
        offsets=offsets,
        users=labels[users],
        n_actions=count if not full else None,
        **extra,
    )
    # What was not observed repeats the last context, as everywhere.
    last = logs.contexts[logs.offsets[1:] - 1]
    return replace(logs, final_contexts=np.where(logs.final_observed[:, None], logs.final_contexts, last))


def assert_same(left: LoggedData, right: LoggedData, *, but: tuple[str, ...] = ()) -> None:
    for field in fields(LoggedData):
        if field.name in but:
            continue
        ours, theirs = getattr(left, field.name), getattr(right, field.name)
        if isinstance(ours, np.ndarray):
            np.testing.assert_array_equal(ours, theirs, err_msg=field.name)
        elif field.name == "metrics":
            assert sorted(ours) == sorted(theirs)
            for name, values in ours.items():
                np.testing.assert_array_equal(values, theirs[name], err_msg=name)
        else:
            assert ours == theirs, field.name


# ---------------------------------------------------------------------- lists of arrays


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    full=st.booleans(),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5).map(tuple),
)
def test_episodes_there_and_back(seed: int, full: bool, lengths: tuple[int, ...]) -> None:
    logs = random_log(seed, full=full, lengths=lengths)
    again = from_episodes(
        to_episodes(logs),
        action_space=logs.action_space,
        schema=logs.schema,
        time_unit=logs.time_unit,
    )
    assert_same(logs, again)


def test_contexts_and_actions_are_enough() -> None:
    logs = from_episodes(
        [
            {"contexts": [[0.0], [1.0], [2.0]], "actions": [1, 0]},
            {"contexts": [[5.0]], "actions": [2]},
        ]
    )
    assert logs.offsets.tolist() == [0, 2, 3]
    assert logs.final_contexts[:, 0].tolist() == [2.0, 5.0]
    assert logs.final_observed.tolist() == [True, False]
    assert logs.n_actions == 3
    assert logs.propensity_mode == "absent"
    assert not logs.terminated.any()


def test_a_flag_per_decision_may_end_the_last_one_only() -> None:
    good = {"contexts": [[0.0], [1.0]], "actions": [0, 1], "terminated": [False, True]}
    assert from_episodes([good]).terminated.tolist() == [True]
    with pytest.raises(DataError, match=r"one at decision 0 of 2.*trajectory 0.*'sessions'"):
        from_episodes([{**good, "terminated": [True, False]}])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": [1.0]}, r"2 rows of 'rewards' for 2 actions, found 1 \(trajectory 1\)"),
        ({"contexts": [[0.0]] * 4}, r"2 or 3 rows of 'contexts' for 2 actions, found 4"),
        ({"actions": [], "contexts": []}, r"at least one decision per trajectory"),
        ({"reward": [1.0, 1.0]}, r"unknown \['reward'\].*metrics"),
        ({"metrics": {"click": [1, 0]}}, r"the same keys.*\['click', 'metrics'\].*trajectory 1"),
        ({"rewards": [1.0, np.nan]}, r"finite rewards, found nan \(row 3"),
        ({"actions": [0, -1]}, r"actions in 0\.\.1, found -1"),
    ],
)
def test_bad_episodes_name_the_trajectory(change: dict[str, Any], message: str) -> None:
    good = {"contexts": [[0.0], [1.0]], "actions": [0, 1], "rewards": [0.0, 1.0]}
    with pytest.raises((DataError, ActionError), match=message):
        from_episodes([good, {**good, **change}])


def test_no_episodes() -> None:
    with pytest.raises(DataError, match="at least one trajectory"):
        from_episodes([])


def test_candidates_with_and_without_a_last_row_do_not_mix() -> None:
    without_last = {"contexts": [[0.0]], "actions": [0], "candidates": [[True, True]]}
    with_last = {"contexts": [[0.0]], "actions": [0], "candidates": [[True, True], [True, False]]}
    assert from_episodes([without_last], n_actions=2).final_candidates is None
    assert from_episodes([with_last], n_actions=2).final_candidates.tolist() == [[True, False]]
    with pytest.raises(DataError, match=r"T\+1 rows in 1 of 2"):
        from_episodes([without_last, with_last], n_actions=2)


# ---------------------------------------------------------------------- Minari


@pytest.fixture
def minari_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("minari", reason="the round trip needs minari")
    pytest.importorskip("pyarrow", reason="minari's arrow format needs pyarrow")
    pytest.importorskip("PIL", reason="minari's storages import pillow")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


DETAILS = {
    "author": "x",
    "author_email": "x@example.com",
    "code_permalink": "none",
    "algorithm_name": "mu",
    "description": "-",
}


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("users", ["text", "numbers"])
@pytest.mark.parametrize("data_format", ["arrow", "parquet", "hdf5"])
def test_minari_there_and_back(minari_home: Path, full: bool, users: str, data_format: str) -> None:
    if data_format == "hdf5":
        pytest.importorskip("h5py", reason="minari's hdf5 format needs h5py")
    logs = random_log(3, full=full, users=users)
    if full:
        ledger = Ledger(rows_in=11, rows_used=9, drops=(Drop(reason="late", rows=2),), notes=("a note",))
        observed = np.arange(len(logs)) % 3 > 0
        at_once = np.arange(len(logs)) / 7
        logs = replace(logs, ledger=ledger, reward_observed=observed, immediate=at_once)
        logs = replace(logs, propensity_mode="estimated")
    to_minari(logs, "shop/banners-v0", data_format=data_format, **DETAILS)
    assert_same(logs, from_minari("shop/banners-v0"))


def test_minari_reads_what_we_write(minari_home: Path) -> None:
    logs = random_log(4)
    dataset = to_minari(logs, "log-v0", **DETAILS)
    episodes = list(dataset.iterate_episodes())
    assert dataset.total_steps == len(logs)
    assert [len(e) for e in episodes] == np.diff(logs.offsets).tolist()
    assert [bool(e.terminations[-1]) for e in episodes] == logs.terminated.tolist()
    assert [bool(e.truncations[-1]) for e in episodes] == (~logs.terminated).tolist()
    assert all(len(e.observations) == len(e) + 1 for e in episodes)
    np.testing.assert_array_equal(np.concatenate([e.rewards for e in episodes]), logs.rewards)
    np.testing.assert_array_equal(episodes[0].infos["propensity"][:-1], logs.propensities[:3])


def test_a_minari_dataset_that_we_did_not_write(minari_home: Path) -> None:
    import minari
    from gymnasium import spaces
    from minari.data_collector.episode_buffer import EpisodeBuffer

    buffers = [
        EpisodeBuffer(
            id=i,
            observations=np.arange(6, dtype=np.float64).reshape(3, 2) + i,
            actions=np.array([1, 2]),
            rewards=[0.5, 1.5],
            terminations=[False, i == 1],
            truncations=[False, i == 0],
            infos={},
        )
        for i in range(2)
    ]
    box = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    dataset = minari.create_dataset_from_buffers(
        "other-v0", buffers, observation_space=box, action_space=spaces.Discrete(3, start=1),
        data_format="arrow", **DETAILS,
    )  # fmt: skip
    logs = from_minari(dataset)
    assert logs.action_space.ids == (1, 2, 3)
    assert logs.actions.tolist() == [0, 1, 0, 1]
    assert logs.terminated.tolist() == [False, True]
    assert logs.final_observed.all()
    assert logs.final_contexts.tolist() == [[4, 5], [5, 6]]
    assert logs.n_users == logs.n_sessions == 2
    assert logs.propensity_mode == "absent"


def test_minari_with_continuous_actions_is_refused(minari_home: Path) -> None:
    import minari
    from gymnasium import spaces
    from minari.data_collector.episode_buffer import EpisodeBuffer

    box = spaces.Box(-1, 1, (2,), np.float32)
    buffer = EpisodeBuffer(
        observations=np.zeros((2, 2), np.float32), actions=np.zeros((1, 2), np.float32),
        rewards=[0.0], terminations=[True], truncations=[False], infos={},
    )  # fmt: skip
    dataset = minari.create_dataset_from_buffers(
        "box-v0", [buffer], observation_space=box, action_space=box, data_format="arrow", **DETAILS
    )
    with pytest.raises(DataError, match=r"action space: Discrete, found Box.*box-v0.*from_episodes"):
        from_minari(dataset)


def test_an_id_in_use_and_a_failure_leave_everything_as_it_was(
    minari_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = random_log(5)
    to_minari(logs, "log-v0", **DETAILS)
    with pytest.raises(ConfigError, match="not in use"):
        to_minari(logs, "log-v0", **DETAILS)
    with pytest.raises(ValueError, match="No storage implemented"):
        to_minari(logs, "half-v0", data_format="clay tablets", **DETAILS)
    assert sorted(path.name for path in minari_home.iterdir() if path.is_dir()) == ["log-v0"]


def test_a_log_without_rewards_has_nothing_to_learn_from(minari_home: Path) -> None:
    logs = replace(random_log(6), rewards=None)
    with pytest.raises(DataError, match="with_rewards"):
        to_minari(logs, "log-v0")
    with pytest.raises(DataError, match="with_rewards"):
        mdp_arrays(logs)


# ---------------------------------------------------------------------- d3rlpy


def endings_log() -> LoggedData:
    """Three users: terminated; truncated with a known last context; truncated without."""
    return from_episodes(
        [
            {"contexts": [[0.0], [1.0]], "actions": [0, 1], "rewards": [1.0, 2.0], "terminated": True},
            {
                "contexts": [[2.0], [3.0], [4.0]],
                "actions": [2, 0],
                "rewards": [3.0, 4.0],
                "terminated": False,
            },
            {"contexts": [[5.0], [6.0]], "actions": [1, 1], "rewards": [5.0, 6.0], "terminated": False},
        ]
    )


def test_endings_become_terminals_and_timeouts() -> None:
    arrays = mdp_arrays(endings_log())
    assert arrays["observations"][:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert arrays["rewards"].tolist() == [1, 2, 3, 4, 0, 5, 6]  # row 4 only closes the second user
    assert arrays["actions"].tolist() == [0, 1, 2, 0, 0, 1, 1]
    assert arrays["terminals"].tolist() == [0, 1, 0, 0, 0, 0, 0]
    assert arrays["timeouts"].tolist() == [0, 0, 0, 0, 1, 0, 1]


def test_a_bandit_log_is_no_decision_process() -> None:
    logs = from_episodes([{"contexts": [[0.0]], "actions": [0], "rewards": [1.0]}] * 3)
    with pytest.raises(DataError, match=r"next context is known.*to_bandit_feedback"):
        mdp_arrays(logs)


def test_without_d3rlpy_the_error_says_how_to_get_it() -> None:
    if find_spec("d3rlpy") is not None:
        pytest.skip("d3rlpy is installed here")
    with pytest.raises(ConfigError, match="pip install d3rlpy"):
        to_d3rlpy(endings_log())


@pytest.mark.peers
def test_d3rlpy_sees_every_transition() -> None:
    d3rlpy = pytest.importorskip("d3rlpy", reason="the round trip needs d3rlpy")
    dataset = to_d3rlpy(endings_log())
    assert dataset.dataset_info.action_space == d3rlpy.ActionSpace.DISCRETE
    assert dataset.dataset_info.action_size == 3
    assert [episode.terminated for episode in dataset.episodes] == [True, False, False]
    # 2 + 2 + 1: only the last decision of the third user is lost, since what followed is unknown.
    assert dataset.transition_count == 5
    picker = d3rlpy.dataset.BasicTransitionPicker()
    transitions = [picker(e, i) for e in dataset.episodes for i in range(e.transition_count)]
    assert [float(t.reward[0]) for t in transitions] == [1, 2, 3, 4, 5]
    assert [float(t.next_observation[0]) for t in transitions] == [1, 0, 3, 4, 6]
    assert [t.terminal for t in transitions] == [0, 1, 0, 0, 0]


@pytest.mark.peers
def test_d3rlpy_learns_from_it(tmp_path: Path) -> None:
    d3rlpy = pytest.importorskip("d3rlpy", reason="the round trip needs d3rlpy")
    logs = random_log(8, lengths=(5,) * 20)
    learner = d3rlpy.algos.DiscreteBCConfig(batch_size=8).create()
    learner.fit(
        to_d3rlpy(logs), n_steps=2, n_steps_per_epoch=2, show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )  # fmt: skip
    assert set(learner.predict(logs.contexts)) <= set(range(logs.n_actions))
