"""A policy that is judged on its own training users never ships; other users with the same numbers may."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import shpi
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.learners import ContextualBandit, OfflineSHPI
from shpi.ope import SNIPS, Evaluation
from shpi.policies import Mixture, UniformPolicy, load_policy, save_policy, training_users
from shpi.policies.files import MANIFEST
from shpi.policies.training_users import KEPT, TrainingUsers
from shpi.values import Constant
from tests.ope.test_shards import write_shards


def bandit(users: int, *, seed: int, ids: object = None, effect: float = 1.0) -> LoggedData:
    rng = np.random.default_rng(seed)
    actions = rng.integers(3, size=users)
    return LoggedData.from_arrays(
        contexts=rng.standard_normal((users, 2)), actions=actions, n_actions=3,
        rewards=effect * (actions == 2) + rng.standard_normal(users),
        propensities=np.full(users, 1 / 3), offsets=np.arange(users + 1), users=ids,
        terminated=np.ones(users, dtype=bool),
    )  # fmt: skip


def judged(policy: shpi.Policy, logs: LoggedData | ShardedLog) -> Evaluation:
    return shpi.evaluate(policy, logs, estimators=[SNIPS()], gate=shpi.Gate(), details=False)


def severity(evaluation: Evaluation) -> str:
    return {diagnostic.name: diagnostic.severity for diagnostic in evaluation.diagnostics}["training users"]


@pytest.fixture(scope="module")
def logs() -> LoggedData:
    return bandit(1_000, seed=0)


def test_the_training_log_never_ships_and_held_out_users_do(logs):
    train, held_out = logs.split_users(0.5, seed=0)
    policy = ContextualBandit().fit(train)
    own, other = judged(policy, train), judged(policy, held_out)
    assert (own.verdict.decision, severity(own)) == ("hold", "fatal")
    assert (other.verdict.decision, severity(other)) == ("ship", "fine")
    assert "learned from" in own.verdict.reasons[0]


def test_a_few_users_more_or_less_change_nothing(logs):
    policy = ContextualBandit().fit(logs.select(np.arange(600)))
    assert severity(judged(policy, logs.select(np.arange(1, 600)))) == "fatal"
    assert severity(judged(policy, logs.select(np.arange(580, 1_000)))) == "fatal"  # 20 of 420
    assert severity(judged(policy, logs.select(np.arange(600, 1_000)))) == "fine"


def test_equal_numbers_of_other_users_are_no_overlap(logs):
    evaluation = judged(ContextualBandit().fit(logs), bandit(1_000, seed=1))
    assert (evaluation.verdict.decision, severity(evaluation)) == ("ship", "note")


def test_where_all_users_look_alike_numbers_alone_say_nothing():
    alike = [bandit(900, seed=seed) for seed in (0, 1)]
    alike = [replace(log, contexts=np.zeros_like(log.contexts)) for log in alike]
    policy = ContextualBandit().fit(alike[0])
    assert severity(judged(policy, alike[1])) == "note"
    assert severity(judged(policy, alike[0])) == "fatal"


def test_a_real_id_is_enough(logs):
    names = np.array([f"user {i}" for i in range(1_000)])
    policy = ContextualBandit().fit(bandit(1_000, seed=0, ids=names))
    later = bandit(1_000, seed=1, ids=names)  # the same users, other decisions
    assert severity(judged(policy, later)) == "fatal"
    shared = bandit(1_000, seed=1, ids=np.append(names[:1], [f"other {i}" for i in range(999)]))
    assert severity(judged(policy, shared)) == "fatal"


def test_they_travel_with_parts_and_files(logs, tmp_path: Path):
    policy = OfflineSHPI(tested=False, k=1, value=Constant(0.0), progress=False).fit(logs)
    for form in (policy, policy.policy, Mixture((policy.policy, UniformPolicy(3)), (0.5, 0.5))):
        place = save_policy(form, tmp_path / type(form).__name__, overwrite=True)
        assert severity(judged(load_policy(place), logs)) == "fatal"
    described = json.loads((place / MANIFEST).read_text())["training_users"]
    assert [entry["users"] for entry in described] == [1_000]
    assert "user" not in described[0]["salt"]


def test_a_policy_without_hashes_says_nothing(logs, tmp_path: Path):
    place = save_policy(UniformPolicy(3), tmp_path / "old")
    assert "training_users" not in json.loads((place / MANIFEST).read_text())
    assert training_users(load_policy(place)) == ()
    assert "training users" not in {
        diagnostic.name for diagnostic in judged(load_policy(place), logs).diagnostics
    }


def test_many_users_leave_a_sample_that_finds_them():
    many = bandit(3 * KEPT, seed=0)
    trained = TrainingUsers.of(many)
    assert len(trained.hashes) == KEPT
    assert trained.count == 3 * KEPT
    policy = ContextualBandit().fit(many)
    half = many.select(np.arange(0, 3 * KEPT, 2))
    share = next(
        diagnostic.figure
        for diagnostic in judged(policy, half).diagnostics
        if diagnostic.name == "training users"
    )
    assert share == 1.0


def test_the_same_log_in_shards_is_found(logs, tmp_path: Path):
    cuts = [logs.select(np.arange(a, b)) for a, b in ((0, 300), (300, 301), (301, 1_000))]
    sharded = write_shards(cuts, tmp_path / "shards")
    assert severity(judged(ContextualBandit().fit(logs), sharded)) == "fatal"
