"""Logs of four worlds in memory, in shards, in two processes and on two machines: the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shpi.cluster import Ray
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog, write_shards
from shpi.envs import make
from shpi.envs.rollout import rollout
from shpi.learners import OfflineSHPI, registry
from shpi.ope import Gate, evaluate
from shpi.passes import Executor, Processes, Serial, audit_shards
from shpi.policies import UniformPolicy
from shpi.values import LSTD
from tests.ope.test_same_bits import differences, small_blocks, tilted

__all__ = ["small_blocks"]

WORLDS: dict[str, tuple[int, dict[str, Any]]] = {
    "storefront": (120, {}),
    "synthetic": (120, {"horizon": 12}),
    "recogym": (8, {}),
    "hiv": (12, {}),
}
SHARDS = 5


@dataclass(frozen=True)
class Backwards:
    """Another order of arrival."""

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for number in reversed(range(len(tasks))):
            yield number, function(tasks[number])


EXECUTORS: dict[str, Executor] = {
    "serial": Serial(),
    "backwards": Backwards(),
    "processes": Processes(jobs=2),
    "ray": Ray(),
}


@pytest.fixture(scope="module", params=WORLDS)
def log(request, tmp_path_factory) -> tuple[LoggedData, ShardedLog]:
    users, settings = WORLDS[request.param]
    simulator = make(request.param, **settings)
    logs = rollout(simulator, UniformPolicy(simulator.n_actions), users, seed=3)
    order = np.random.default_rng(1).permutation(logs.n_trajectories)
    folder: Path = tmp_path_factory.mktemp(request.param) / "shards"
    return logs, write_shards([logs.select(order[i::SHARDS]) for i in range(SHARDS)], folder)


def test_the_same_policy(machines, log, monkeypatch):
    """Bit by bit, of a log beyond the budget too, the log in memory included."""
    logs, shards = log
    monkeypatch.setattr("shpi.learners.base.MOST_ROWS", len(logs) // 2)
    learner = OfflineSHPI(seed=2, k=1, iterations=1, progress=False)
    whole = learner.fit(logs)
    for name, executor in EXECUTORS.items():
        policy = learner.fit(shards, executor=executor)
        np.testing.assert_array_equal(
            policy.action_probs(logs.contexts), whole.action_probs(logs.contexts), err_msg=name
        )
        assert policy.chosen == whole.chosen
        assert policy.lift == whole.lift
        assert [trial.words for trial in policy.trials] == [trial.words for trial in whole.trials]


def test_the_same_audit(machines, log):
    """What is counted is that of the whole log; what is sampled is the same sample for everybody."""
    logs, shards = log
    exact = logs.audit().facts
    reports = [
        audit_shards(shards, executor=executor, most_rows=len(logs) // 2) for executor in EXECUTORS.values()
    ]
    for report in reports:
        assert str(report) == str(reports[0])
        assert report.facts.structure.users == exact.structure.users
        assert report.facts.structure.sessions == exact.structure.sessions
        assert report.facts.actions.most == exact.actions.most


def test_the_same_value(machines, log):
    """Sums over all rows: the same bits in shards, whoever adds them, and the log's to rounding.

    Measured: 2e-15 to 9e-14 of the largest value. Sums in another order differ in their last digit, which the
    system multiplies by up to its condition, 500 to 400,000 here.
    """
    logs, shards = log
    model = LSTD(ridge=30.0)
    serial = model.fit(shards, gamma=0.9, seed=0)
    for executor in EXECUTORS.values():
        np.testing.assert_array_equal(
            model.fit(shards, gamma=0.9, seed=0, executor=executor).theta, serial.theta
        )
    whole = model.fit(logs, gamma=0.9, seed=0)(logs.contexts)
    np.testing.assert_allclose(serial(logs.contexts), whole, rtol=0, atol=1e-12 * np.abs(whole).max())


@pytest.mark.parametrize("name", ["bandit", "session-rl", "clone", "spibb"])
def test_other_learners_take_an_executor(machines, name, tmp_path):
    simulator = make("storefront")
    logs = rollout(simulator, UniformPolicy(simulator.n_actions), 60, seed=3)
    shards = write_shards([logs.select(np.arange(i, 60, 3)) for i in range(3)], tmp_path / "shards")
    learner: Any = registry.make(name, seed=0)
    np.testing.assert_array_equal(
        learner.fit(shards, executor=Ray()).action_probs(logs.contexts),
        learner.fit(logs).action_probs(logs.contexts),
    )


# Few rows make Gram matrices that are nearly singular, and long horizons weights that overflow.
@pytest.mark.filterwarnings("ignore::scipy.linalg.LinAlgWarning", "ignore::RuntimeWarning")
@pytest.mark.usefixtures("small_blocks")
def test_the_same_evaluation(machines, log, monkeypatch):
    """Bit by bit: the log in memory, its shards, two processes and two machines; estimates to verdict."""
    logs, shards = log
    monkeypatch.setattr("shpi.ope._log.blocks.ROWS", len(logs) // 3 + 1)
    policy = tilted(logs)
    whole = evaluate(policy, logs, gate=Gate(), gamma=0.9, horizon=8, details=False)
    assert whole.verdict is not None
    for name, executor in EXECUTORS.items():
        there = evaluate(policy, shards, gate=Gate(), gamma=0.9, horizon=8, details=False, executor=executor)
        assert [*differences(whole, there)] == [], name
        assert there.verdict is not None
        assert there.verdict.decision == whole.verdict.decision
