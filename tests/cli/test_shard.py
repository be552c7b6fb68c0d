"""``shpi shard``, and the verbs on a folder of shards: what they say about the same log in memory."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shpi
from shpi.cli.main import main
from shpi.data.shards import ShardedLog
from shpi.envs import make
from shpi.envs.rollout import rollout
from shpi.passes import audit_shards
from shpi.policies import UniformPolicy


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    simulator = make("storefront")
    logs = rollout(simulator, UniformPolicy(simulator.n_actions), 300, seed=1)
    train, held_out = logs.split_users(0.5, seed=0)
    train.to_parquet(folder / "train.parquet")
    held_out.to_parquet(folder / "held-out.parquet")
    for name in ("train", "held-out"):
        call = ["shard", str(folder / f"{name}.parquet"), "--rows", "200", "--out", str(folder / name)]
        assert main(call) == 0
    return folder


def test_a_table_becomes_shards(tmp_path, capsys):
    rng, n = np.random.default_rng(0), 400
    pl.DataFrame(
        {"uid": rng.integers(0, 50, n), "t": np.arange(n), "a": rng.integers(0, 3, n), "p": 1 / 3,
         "r": rng.random(n), "x": rng.random(n)}
    ).write_parquet(tmp_path / "events.parquet")  # fmt: skip
    (tmp_path / "map.toml").write_text(
        'user = "uid"\ntime = "t"\naction = "a"\npropensity = "p"\nreward = "r"\ncontext = ["x"]\n'
    )
    call = ["shard", str(tmp_path / "events.parquet"), "--columns", str(tmp_path / "map.toml"),
            "--rows", "100", "--out", str(tmp_path / "shards")]  # fmt: skip
    assert main(call) == 0
    assert "400 decisions in 4 shards" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "shards" / "manifest.json").read_text())
    assert (manifest["version"], manifest["users"], sum(manifest["action_counts"])) == (4, 50, 400)
    assert manifest["hash"].startswith("blake2b")
    assert manifest["shpi"] == shpi.__version__
    for name, shard in zip(manifest["files"], manifest["shards"], strict=True):
        content = (tmp_path / "shards" / name).read_bytes()
        assert (len(content), sha256(content).hexdigest()) == (shard["bytes"], shard["sha256"])
    assert sum(shard["users"] for shard in manifest["shards"]) == 50
    low, high = manifest["reward_range"]
    assert 0 <= low < high <= 1
    assert main(call) == 2  # it is there already
    assert "a folder that does not exist yet" in capsys.readouterr().err


def test_audit_counts_the_whole_log(place, capsys, monkeypatch):
    monkeypatch.setitem(audit_shards.__kwdefaults__, "most_rows", 300)
    assert main(["audit", str(place / "train.parquet"), "--json"]) in (0, 1)
    of_whole = json.loads(capsys.readouterr().out)
    assert main(["audit", str(place / "train"), "--json"]) in (0, 1)
    of_shards = json.loads(capsys.readouterr().out)
    for name in ("decisions", "users", "trajectories", "sessions", "terminated", "truncated"):
        assert of_shards["facts"]["structure"][name] == of_whole["facts"]["structure"][name]
    assert of_shards["facts"]["actions"]["most"] == of_whole["facts"]["actions"]["most"]
    assert of_shards["facts"]["rows"]["rows_used"] == of_whole["facts"]["rows"]["rows_used"]
    assert [f["code"] for f in of_shards["findings"]].count("sampled") == 1
    assert "sampled" not in [f["code"] for f in of_whole["findings"]]


def test_fit_and_evaluate_say_the_same_as_in_memory(place, tmp_path, capsys):
    codes = []
    for name in ("train", "train.parquet"):
        policy = tmp_path / f"policy-{name}"
        call = ["fit", str(place / name), "--learner", "bandit", "--out", str(policy)]
        assert main(call) == 0
        held_out = place / name.replace("train", "held-out")
        codes.append(main(["evaluate", str(policy), str(held_out), "--json", str(tmp_path / f"{name}.json")]))
    assert codes[0] == codes[1]
    of_shards, of_whole = (
        json.loads((tmp_path / f"{name}.json").read_text()) for name in ("train", "train.parquet")
    )
    assert of_shards["verdict"]["decision"] == of_whole["verdict"]["decision"]
    for left, right in zip(of_whole["estimates"], of_shards["estimates"], strict=True):
        assert right["lift"] == pytest.approx(left["lift"], rel=1e-8, abs=1e-10)
    capsys.readouterr()


@pytest.mark.usefixtures("learners_in_process")
def test_compare_judges_on_all_held_out_users(place, tmp_path, capsys):
    tables = []
    for name in ("train", "train.parquet"):
        call = ["compare", str(place / name), "--learners", "bandit", "--json", str(tmp_path / "table.json")]
        assert main(call) == 0
        (row,) = json.loads((tmp_path / "table.json").read_text())["rows"]
        tables.append(row)
    capsys.readouterr()
    assert tables[0]["verdict"] == tables[1]["verdict"]
    for name in ("lift", "lift_lower", "lift_upper"):
        assert tables[0][name] == pytest.approx(tables[1][name], rel=1e-8)


def test_a_folder_is_split_as_the_log_in_memory(place, tmp_path, capsys):
    assert main(["split", str(place / "train"), "--held-out", "0.3", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    whole = shpi.LoggedData.read(place / "train.parquet")
    for folder, split in zip(("train", "held-out"), whole.split_users(0.3, seed=0), strict=True):
        users = {user for shard in ShardedLog.open(tmp_path / folder) for user in shard.users}
        assert users == set(split.users)


def test_options_about_the_table_are_refused(place, capsys):
    assert main(["audit", str(place / "train"), "--session-gap", "30m"]) == 2
    assert "found --session-gap" in capsys.readouterr().err
    assert main(["fit", str(place / "train"), "--jobs", "0", "--out", str(place / "p")]) == 2
    assert "--jobs of at least 1" in capsys.readouterr().err


def test_a_missing_and_a_foreign_shard_are_named(place, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(place / "train", copy)
    victim = ShardedLog.open(copy).files[1]
    content = victim.read_bytes()
    victim.write_bytes(content[: len(content) // 2])
    assert main(["audit", str(copy)]) == 2
    assert victim.name in capsys.readouterr().err
    other = ShardedLog.open(place / "held-out").files[0]
    shutil.copy(other, victim)
    assert main(["audit", str(copy)]) == 2
    capsys.readouterr()
    victim.unlink()
    assert main(["audit", str(copy)]) == 2
    assert f"{victim.name} missing" in capsys.readouterr().err
