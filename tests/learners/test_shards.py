"""Learning from shards: the policy that the same log in memory teaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from shpi.data._log.cut import taken_as_cut
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog, write_shards
from shpi.envs import make
from shpi.envs.rollout import rollout
from shpi.learners import OfflineSHPI, registry
from shpi.learners.base import learned_from
from shpi.passes import Processes
from shpi.policies import UniformPolicy
from shpi.values import LSTD

WORLDS = {"storefront": (160, {}), "synthetic": (160, {"horizon": 12}), "recogym": (8, {})}


@dataclass(frozen=True)
class Backwards:
    """Another order of arrival."""

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for number in reversed(range(len(tasks))):
            yield number, function(tasks[number])


def log_of(world: str, users: int | None = None) -> LoggedData:
    usual, settings = WORLDS[world]
    simulator = make(world, **settings)
    return rollout(simulator, UniformPolicy(simulator.n_actions), users or usual, seed=3)


def in_shards(logs: LoggedData, folder, count: int = 5) -> ShardedLog:
    order = np.random.default_rng(1).permutation(logs.n_trajectories)
    return write_shards([logs.select(order[i::count]) for i in range(count)], folder)


@pytest.mark.parametrize("world", WORLDS)
def test_the_default_learner_returns_the_same_policy(world, tmp_path, monkeypatch):
    """Of a log beyond the budget both look at the same users, so every bit is the same."""
    logs = log_of(world)
    monkeypatch.setattr("shpi.learners.base.MOST_ROWS", len(logs) // 2)
    from_whole = OfflineSHPI(seed=2, iterations=2).fit(logs)
    from_shards = OfflineSHPI(seed=2, iterations=2).fit(in_shards(logs, tmp_path / "shards"))
    np.testing.assert_array_equal(
        from_whole.action_probs(logs.contexts), from_shards.action_probs(logs.contexts)
    )
    assert [trial.words for trial in from_whole.trials] == [trial.words for trial in from_shards.trials]
    assert from_whole.lift == from_shards.lift
    assert from_shards.notes[:-1] == from_whole.notes
    assert f"of {len(logs):,} decisions" in from_shards.notes[-1]


def test_a_short_log_in_shards_is_learned_from_as_a_whole(tmp_path):
    logs = log_of("storefront", 60)
    shards = in_shards(logs, tmp_path / "shards")
    for name in ("bandit", "clone", "session-rl"):
        from_whole, from_shards = (registry.make(name, seed=0).fit(source) for source in (logs, shards))
        np.testing.assert_array_equal(
            from_whole.action_probs(logs.contexts), from_shards.action_probs(logs.contexts)
        )
    policy = OfflineSHPI(iterations=1).fit(shards)
    assert not any("Learned from" in note for note in policy.notes)


def test_processes_draw_the_same_users(tmp_path, monkeypatch):
    logs = log_of("storefront", 80)
    monkeypatch.setattr("shpi.learners.base.MOST_ROWS", len(logs) // 3)
    shards = in_shards(logs, tmp_path / "shards", 3)
    from_whole = learned_from(logs, seed=5)
    for executor in (None, Processes(jobs=2)):
        from_shards = learned_from(shards, seed=5, executor=executor)
        np.testing.assert_array_equal(from_whole.users, from_shards.users)
        np.testing.assert_array_equal(from_whole.contexts, from_shards.contexts)


def test_lstd_of_a_long_log_is_the_same_in_shards(tmp_path):
    """To 1e-12 of the largest value, in whatever order the log in memory has its users."""
    rng, users, steps = np.random.default_rng(0), 6000, 20
    n = users * steps
    contexts = rng.normal(size=(n, 3))
    logs = LoggedData.from_arrays(
        contexts=contexts, actions=rng.integers(0, 2, n), rewards=np.sin(contexts[:, 0]) + rng.normal(size=n),
        propensities=np.full(n, 0.5), offsets=np.arange(users + 1) * steps, n_actions=2,
        final_contexts=rng.normal(size=(users, 3)),
    )  # fmt: skip
    shards = in_shards(logs, tmp_path / "shards", 5)
    mixed = logs.select(rng.permutation(users))
    model = LSTD(choice_rows=2000, n_features=40)
    whole = model.fit(logs, gamma=0.9, seed=0)
    values = whole(contexts)
    in_parts = model.fit(shards, gamma=0.9, seed=0)
    for other in (in_parts, model.fit(mixed, gamma=0.9, seed=0)):
        assert np.abs(other(contexts) - values).max() <= 1e-12 * np.abs(values).max()
    for executor in (Backwards(), Processes(jobs=2)):
        np.testing.assert_array_equal(
            model.fit(shards, gamma=0.9, seed=0, executor=executor).theta, in_parts.theta
        )


def test_lstd_takes_as_cut_what_the_whole_log_takes(tmp_path):
    """Half of the ends are not seen, and each shard has another share of them."""
    rng, users = np.random.default_rng(0), 200
    lengths = rng.integers(1, 6, users)
    n = int(lengths.sum())
    terminated = rng.random(users) < np.linspace(0.1, 0.9, users)
    logs = LoggedData.from_arrays(
        contexts=rng.normal(size=(n, 2)), actions=rng.integers(0, 2, n), rewards=rng.normal(size=n),
        propensities=np.full(n, 0.5), offsets=np.append(0, np.cumsum(lengths)), terminated=terminated,
        n_actions=2,
    )  # fmt: skip
    assert taken_as_cut(logs).any()
    shards = write_shards([logs.select(np.arange(a, a + 50)) for a in range(0, users, 50)], tmp_path / "s")
    from_whole, from_shards = (LSTD(ridge=1.0).fit(source, gamma=0.9, seed=0) for source in (logs, shards))
    np.testing.assert_allclose(from_shards(logs.contexts), from_whole(logs.contexts), rtol=1e-9)
