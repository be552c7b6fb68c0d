"""Files of every released version can be read, and say what they said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import shpi
from shpi.data.shards import ShardedLog
from shpi.envs.fitted.simulator import FittedWorld
from shpi.policies import UniformPolicy, load_policy, read_policy_file
from shpi.values import load_value
from tests.compat.make import ACTIONS, CONTEXTS, SCHEMA

VERSIONS = sorted(place for place in Path(__file__).parent.iterdir() if place.name.startswith("v"))


@pytest.fixture(params=VERSIONS, ids=[place.name for place in VERSIONS])
def folder(request: pytest.FixtureRequest) -> Path:
    place: Path = request.param
    return place


def test_policies(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())["probs"]
    for name, probs in expected.items():
        if name == "trees":
            pytest.importorskip("lightgbm")
        policy = load_policy(folder / f"policy-{name}")
        np.testing.assert_allclose(policy.action_probs(CONTEXTS), probs, atol=1e-12, err_msg=name)
    described = read_policy_file(folder / "policy-nested")
    assert (described.schema, described.actions) == (SCHEMA, ACTIONS)
    assert described.notes == {"origin": "fixture"}


def test_logs_and_shards(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    logs = shpi.LoggedData.read(folder / "log.parquet")
    assert (logs.fingerprint(), len(logs)) == (expected["log"], expected["rows"])
    shards = ShardedLog.open(folder / "shards")
    assert sum(len(shard) for shard in shards) == expected["rows"]


def test_values_and_worlds(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    logs = shpi.LoggedData.read(folder / "log.parquet")
    np.testing.assert_allclose(
        load_value(folder / "value.npz")(logs.contexts[:5]), expected["values"], atol=1e-9
    )
    world = FittedWorld.load(folder / "world")
    assert {"n_actions": world.n_actions, "horizon": world.horizon} == expected["world"]
    assert len(world.rollout(UniformPolicy(world.n_actions), 3, 0)) > 0
