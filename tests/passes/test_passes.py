"""Passes over shards: the same bits whoever does the work, in whatever order it arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from shpi.data.shards import ShardedLog, write_shards
from shpi.errors import ConfigError, ShpiError
from shpi.passes import Executor, Processes, Serial, TreeSum, add_up, collect, tree_sum
from tests.ope.worlds import H, small_world
from tests.passes.work import always_killed, environment, killed_once, moments, own_number


@dataclass(frozen=True)
class Shuffled:
    """Another order of arrival."""

    seed: int

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for number in np.random.default_rng(self.seed).permutation(len(tasks)):
            yield int(number), function(tasks[number])


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> ShardedLog:
    mdp, mu, _ = small_world()
    whole = mdp.log(mu, 91, H, seed=3, ragged=True)
    parts = [whole.select(np.arange(i, 91, 7)) for i in range(7)]
    return write_shards(parts, tmp_path_factory.mktemp("logs") / "shards")


def test_every_executor_and_every_order_give_the_same_bits(shards):
    serial = add_up(shards, moments)
    executors: list[Executor] = [Serial(), *(Shuffled(seed) for seed in range(20)), Processes(jobs=2)]
    for executor in executors:
        np.testing.assert_array_equal(add_up(shards, moments, executor=executor), serial)
    in_order = sum(collect(shards, moments))
    np.testing.assert_allclose(serial, in_order, rtol=1e-12)


def test_a_log_in_memory_is_one_shard():
    mdp, mu, _ = small_world()
    whole = mdp.log(mu, 30, H, seed=3)
    np.testing.assert_array_equal(add_up(whole, moments), moments(whole))


@pytest.mark.parametrize("count", range(1, 18))
def test_the_tree_does_not_depend_on_the_order(count):
    values = np.random.default_rng(count).normal(size=count) * 10.0 ** np.arange(count)
    expected = tree_sum(values)
    for seed in range(5):
        total: TreeSum[float] = TreeSum(count)
        for number in np.random.default_rng(seed).permutation(count):
            total.give(int(number), values[number])
        assert total.total() == expected
    words = tree_sum([str(number) for number in range(count)])  # addition that does not commute
    assert words == "".join(str(number) for number in range(count))


def test_a_missing_or_doubled_shard_is_no_sum():
    total: TreeSum[int] = TreeSum(3)
    total.give(0, 1)
    with pytest.raises(ConfigError, match="once"):
        total.give(0, 1)
    with pytest.raises(ConfigError, match="all 3 shards"):
        total.total()


def test_a_killed_process_costs_nothing_but_time(shards, tmp_path):
    total = add_up(shards, partial(killed_once, tmp_path / "killed"), executor=Processes(jobs=2))
    assert (tmp_path / "killed").exists()
    np.testing.assert_array_equal(total, add_up(shards, moments))


def test_processes_stay_and_know_the_environment_of_the_pass(shards, monkeypatch):
    first, second = (set(collect(shards, own_number, executor=Processes(jobs=2))) for _ in range(2))
    assert len(first | second) <= 2
    monkeypatch.setenv("SHPI_TEST", "new")
    assert set(collect(shards, environment, executor=Processes(jobs=2))) == {"new"}


def test_processes_that_are_always_killed_end_in_an_error(shards):
    with pytest.raises(ShpiError, match="killed 3 times, with 7 shards to do"):
        add_up(shards, always_killed, executor=Processes(jobs=2))
