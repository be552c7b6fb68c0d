"""A choice among learners on shards is that in memory, whoever passes over them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog, write_shards
from shpi.envs.storefront import Storefront
from shpi.errors import DataError
from shpi.learners import registry
from shpi.ope import SNPDIS, WDR, Selection, select
from shpi.ope.division import divided
from shpi.passes import Processes
from shpi.policies import UniformPolicy
from tests.ope.test_same_bits import differences
from tests.ope.test_selection import Favourite


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[LoggedData, ShardedLog]:
    logs = Storefront().rollout(UniformPolicy(Storefront().n_actions), 90, seed=1)
    order = np.random.default_rng(1).permutation(logs.n_trajectories)
    folder: Path = tmp_path_factory.mktemp("log") / "shards"
    return logs, write_shards([logs.select(order[i::3]) for i in range(3)], folder)


def test_memory_shards_and_processes_choose_alike(
    log: tuple[LoggedData, ShardedLog], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials, winner, policy and evaluation bit by bit; nothing stays in the temporary folder."""
    monkeypatch.setattr("shpi.ope._log.blocks.ROWS", 300)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    logs, shards = log
    learners: dict[str, Any] = {name: registry.make(name, seed=0) for name in ("bandit", "clone")}

    def chosen(source: Any, **options: Any) -> Selection:
        asked = {"gamma": 0.9, "horizon": 4, "details": False, "estimators": [WDR(), SNPDIS()]}
        return select(learners, source, folds=2, seed=3, **asked, **options)

    in_memory = chosen(logs)
    for executor in (None, Processes(jobs=2)):
        in_shards = chosen(shards, executor=executor)
        assert in_shards.winner == in_memory.winner
        assert in_shards.trials == in_memory.trials
        assert [*differences(in_memory.evaluation, in_shards.evaluation)] == []
        np.testing.assert_array_equal(
            in_shards.policy.action_probs(logs.contexts), in_memory.policy.action_probs(logs.contexts)
        )
        assert list(tmp_path.iterdir()) == []


def test_groups_are_the_same_users_and_share_none(log: tuple[LoggedData, ShardedLog]) -> None:
    logs, shards = log
    with divided(logs, 0.3, 3, (1, 2)) as memory, divided(shards, 0.3, 3, (1, 2)) as folders:

        def users(part: Any) -> set[Any]:
            pieces = [part] if isinstance(part, LoggedData) else list(part)
            return {user for piece in pieces for user in piece.user_ids.tolist()}

        groups = [memory.fold(0), memory.fold(1), memory.fold(2), memory.confirm]
        assert sum(len(users(group)) for group in groups) == logs.n_users
        assert set.union(*map(users, groups)) == set(logs.user_ids.tolist())
        assert users(memory.confirm) == set(logs.split_users(0.3, seed=1)[1].user_ids.tolist())
        for name in ("inner", "confirm"):
            assert users(getattr(memory, name)) == users(getattr(folders, name))
        for fold in range(3):
            assert users(memory.fold(fold)) == users(folders.fold(fold))
            assert users(memory.without(fold)) == users(folders.without(fold))
            assert users(memory.without(fold)) == users(memory.inner) - users(memory.fold(fold))
        assert memory.longest_of_all == folders.longest_of_all
        assert folders.inner.rows == len(memory.inner)


def test_a_learner_that_takes_no_shards_gets_the_log(log: tuple[LoggedData, ShardedLog]) -> None:
    users: set[Any] = set()
    learner = Favourite(fitted_users=(users,))
    with pytest.raises(DataError, match="candidate that can be judged"):  # it has other actions
        select({"favourite": learner}, log[1])
    assert len(users) == 42  # two of three folds of the 63 inner users, once
