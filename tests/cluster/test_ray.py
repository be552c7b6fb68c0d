"""Passes on a Ray cluster: the bits of one process, and the same after workers and machines were killed."""

from __future__ import annotations

import operator
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from shpi.cluster import Ray, connection, tasks
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog, write_shards
from shpi.errors import ConfigError, DataError, MissingExtraError, ShpiError
from shpi.passes import TreeSum, add_up, collect
from tests.ope.worlds import H, small_world

USERS, COUNT = 190, 19  # so that there are three levels of sums


def moments(logs: LoggedData) -> np.ndarray:
    x = np.column_stack([logs.contexts, logs.rewards]).astype(np.float64)
    return x.T @ x


def slow_and_large(logs: LoggedData) -> np.ndarray:
    """Too large to be sent with the task's end: it stays on the machine, and is lost with it."""
    time.sleep(0.2)
    return np.tile(moments(logs).ravel()[:4], 50_000)


def killed_once(marker: Path, logs: LoggedData) -> np.ndarray:
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return moments(logs)


def always_killed(logs: LoggedData) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refused(logs: LoggedData) -> None:
    raise DataError(expected="a better log", found="this one", where="everywhere")


def threads(logs: LoggedData) -> tuple[str | None, int]:
    from threadpoolctl import threadpool_info

    return os.environ.get("OPENBLAS_NUM_THREADS"), max(pool["num_threads"] for pool in threadpool_info())


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> ShardedLog:
    mdp, mu, _ = small_world()
    whole = mdp.log(mu, USERS, H, seed=3, ragged=True)
    parts = [whole.select(np.arange(i, USERS, COUNT)) for i in range(COUNT)]
    return write_shards(parts, tmp_path_factory.mktemp("logs") / "shards")


def test_sums_and_results_have_the_bits_of_one_process(machines, shards):
    np.testing.assert_array_equal(add_up(shards, moments, executor=Ray()), add_up(shards, moments))
    for there, here in zip(collect(shards, moments, executor=Ray()), collect(shards, moments), strict=True):
        np.testing.assert_array_equal(there, here)
    total = add_up(shards, moments, executor=Ray())
    total += 1  # it is ours, as that of any executor
    assert set(collect(shards, threads, executor=Ray())) == {("1", 1)}


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 63, 64, 65, 200])
def test_blocks_are_subtrees(count):
    """Adding blocks of neighbours, then the blocks, is the tree of all: no sum meets another partner."""
    words = [f"{number} " for number in range(count)]
    brackets: TreeSum[str] = TreeSum(count, lambda left, right: f"({left}{right})")
    for number, word in enumerate(words):
        brackets.give(number, word)
    level, sizes = words, tasks._sizes(count)
    for number in range(len(sizes) - 1):
        blocks = [tasks._block(number, place, sizes) for place in range(0, sizes[number], tasks.BLOCK)]
        level = [
            tasks.add_block(lambda left, right: f"({left}{right})", {}, *(level[i] for _, i in block))[1]
            for block in blocks
        ]
    assert level == [brackets.total()]


def test_a_killed_worker_costs_nothing_but_time(machines, shards, tmp_path):
    total = add_up(shards, partial(killed_once, tmp_path / "killed"), executor=Ray())
    assert (tmp_path / "killed").exists()
    np.testing.assert_array_equal(total, add_up(shards, moments))


@pytest.mark.parametrize("after", [0.3, 2.0])
def test_a_killed_machine_costs_nothing_but_time(machines, shards, after):
    """Early its tasks are lost, late also sums that it had kept."""
    expected = add_up(shards, slow_and_large)
    killer = threading.Timer(after, machines.kill)
    killer.start()
    total = add_up(shards, slow_and_large, executor=Ray())
    killer.join()
    machines.replace()
    np.testing.assert_array_equal(total, expected)


def test_workers_that_are_always_killed_end_in_an_error(machines, shards):
    with pytest.raises(ShpiError, match="lost with its worker again and again"):
        add_up(shards, always_killed, executor=Ray(retries=0))


def test_an_error_arrives_as_it_was_raised(machines, shards):
    for work in (partial(add_up, shards, refused), partial(collect, shards, refused)):
        with pytest.raises(DataError, match="expected a better log"):
            work(executor=Ray())


def test_machines_with_other_versions_refuse(machines, shards, monkeypatch):
    monkeypatch.setattr(tasks, "versions", lambda: {"shpi": "0.1.9", "numpy": np.__version__})
    with pytest.raises(ShpiError, match=r"same versions on every machine: shpi 0\.1\.9, found shpi 0\.2"):
        add_up(shards, moments, executor=Ray())


def test_shards_that_a_machine_does_not_have_are_explained(machines, shards):
    with pytest.raises(ShpiError, match="machines that can read the shards"):
        list(Ray().run(open_it, [Path("/nowhere/shard-00000.parquet")]))


def open_it(path: Path) -> bytes:
    return path.read_bytes()


def test_without_ray_the_extra_is_named(monkeypatch, shards):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'shpi\[cluster\]'"):
        add_up(shards, moments, executor=Ray())


def test_a_cluster_that_does_not_answer_is_named(monkeypatch):
    ray = pytest.importorskip("ray", reason="needs ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    for address in ("127.0.0.1:1", "auto"):
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
        with pytest.raises(ConfigError, match=r"a Ray cluster that answers.*ray start --head"):
            connection.connect(address)
    with pytest.raises(ConfigError, match="auto, local or HOST:PORT"):
        connection.connect("nowhere")


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="retries"):
        Ray(retries=-1)
    with pytest.raises(ConfigError, match="at least one shard"):
        Ray().add_up(moments, [], operator.add)
