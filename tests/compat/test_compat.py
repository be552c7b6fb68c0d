"""Files of every released version can be read, and say what they said."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

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


def test_a_policy_that_was_saved_with_numpy_2_0_loads(folder: Path, tmp_path: Path) -> None:
    """``np.savez_compressed(…, allow_pickle=False)`` of numpy 2.0 and 2.1 stored an array of that name."""
    if json.loads((folder / "policy-nested" / "manifest.json").read_text())["version"] > 1:
        pytest.skip("its writer names every array itself")
    place = tmp_path / "p"
    shutil.copytree(folder / "policy-nested", place)
    with np.load(place / "arrays.npz") as arrays:
        np.savez_compressed(place / "arrays.npz", **dict(arrays) | {"stray": np.array(False)})
    with zipfile.ZipFile(place / "arrays.npz") as archive:
        entries = {name.replace("stray", "allow_pickle"): archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(place / "arrays.npz", "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    assert "allow_pickle.npy" in entries
    expected = load_policy(folder / "policy-nested").action_probs(CONTEXTS)
    np.testing.assert_array_equal(load_policy(place).action_probs(CONTEXTS), expected)


def test_no_stray_array_is_written(folder: Path, tmp_path: Path) -> None:
    for kind in ("policy-nested", "policy-bandit"):
        place = load_policy(folder / kind).save(tmp_path / kind)  # type: ignore[attr-defined]
        manifest = json.loads((place / "manifest.json").read_text())
        with np.load(place / manifest["arrays"], allow_pickle=False) as arrays:
            names = sorted(arrays)
        assert names == sorted(_described(manifest["policy"]))
        assert load_policy(place).n_actions == manifest["n_actions"]


def _described(node: dict[str, Any], place: str = "") -> list[str]:
    """Names of the arrays that a node of a manifest and its children have."""
    inner = [name for key, child in node["children"].items() for name in _described(child, f"{place}{key}/")]
    return [f"{place}{name}" for name in node["arrays"]] + inner
