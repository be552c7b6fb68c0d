"""``--ray`` and ``--jobs``: the verbs on a folder of shards say what they say in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shpi
from shpi.cli.main import main
from shpi.cluster import Ray
from shpi.envs import make
from shpi.envs.rollout import rollout
from shpi.passes import Processes
from shpi.policies import UniformPolicy

WHO = {"one process": [], "two processes": ["--jobs", "2"], "two machines": ["--ray", "auto"]}


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("shop")
    simulator = make("storefront")
    rollout(simulator, UniformPolicy(simulator.n_actions), 200, seed=1).to_parquet(folder / "log.parquet")
    assert main(["shard", str(folder / "log.parquet"), "--rows", "200", "--out", str(folder / "shards")]) == 0
    return folder


def test_audit_fit_and_split(machines, shop, tmp_path, capsys):
    audits, policies, splits = [], [], []
    for number, who in enumerate(WHO.values()):
        capsys.readouterr()
        assert main(["audit", str(shop / "shards"), "--json", *who]) in (0, 1)
        audits.append(json.loads(capsys.readouterr().out))
        out = tmp_path / f"{number}"
        assert main(["fit", str(shop / "shards"), "--learner", "bandit", "--out", str(out), *who]) == 0
        policies.append(shpi.load_policy(out))
        assert main(["split", str(shop / "shards"), "--out", str(tmp_path / f"split-{number}"), *who]) == 0
        splits.append(shpi.data.ShardedLog.open(tmp_path / f"split-{number}" / "train").fingerprint())
    assert audits[0] == audits[1] == audits[2]
    assert splits[0] == splits[1] == splits[2]
    x = shpi.LoggedData.read(shop / "log.parquet").contexts
    for policy in policies[1:]:
        np.testing.assert_array_equal(policy.action_probs(x), policies[0].action_probs(x))


@pytest.mark.parametrize(
    ("verb", "who", "executor"),
    [
        ("evaluate", [], None),
        ("evaluate", ["--jobs", "2"], Processes(jobs=2)),
        ("evaluate", ["--ray", "auto"], Ray("auto")),
        ("compare", ["--ray", "auto"], Ray("auto")),
    ],
)
def test_evaluate_and_compare_hand_the_executor_on(
    machines, shop, tmp_path, monkeypatch, verb, who, executor
):
    handed: list[Any] = []

    def compare(policies: Any, logs: Any, gate: Any, **options: Any) -> None:
        handed.append((len(logs), options.get("executor")))
        raise shpi.errors.ConfigError(expected="nothing more", found="enough")

    monkeypatch.setattr("shpi.ope.candidates.compare", compare)
    monkeypatch.setattr("shpi.ope.compare", compare, raising=False)
    if verb == "evaluate":
        policy = tmp_path / "policy"
        assert main(["fit", str(shop / "shards"), "--learner", "bandit", "--out", str(policy)]) == 0
        main(["evaluate", str(policy), str(shop / "shards"), *who])
    else:
        main(["compare", str(shop / "shards"), "--learners", "bandit", *who])
    shards = len(list((shop / "shards").glob("shard-*")))
    assert (shards, executor) == handed[0]


def test_both_are_refused(shop, capsys):
    assert main(["audit", str(shop / "shards"), "--jobs", "2", "--ray", "auto"]) == 2
    assert "expected --jobs or --ray, found both" in capsys.readouterr().err
