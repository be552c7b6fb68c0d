"""One pass over a log. A log in memory is a single shard, so there is only one code path."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from shpi._core.executors import Adder, Executor, Serial
from shpi._core.hashing import hash_users, share_of
from shpi.data._log.sample import LEAST_USERS, draw, smallest
from shpi.data.logged import LoggedData
from shpi.data.shards import OnShard, ShardedLog
from shpi.passes.tree import TreeSum

T = TypeVar("T")
Log = LoggedData | ShardedLog


def add_up(
    logs: Log,
    function: Callable[[LoggedData], T],
    *,
    executor: Executor | None = None,
    add: Callable[[T, T], T] = operator.add,
) -> T:
    """The sum of the function over all shards, bit-equal for every executor and order.

    Args:
        logs: a log in memory, which is one shard, or a folder of shards.
        function: maps the log of a shard to something that can be added. For processes it must be importable.
        executor: runs the pass; None is this process.
        add: adds two results.
    """
    tasks, who = _tasks(logs), _executor(logs, executor)
    if isinstance(who, Adder):
        return who.add_up(OnShard(function), tasks, add)
    total: TreeSum[T] = TreeSum(len(tasks), add)
    for number, value in who.run(OnShard(function), tasks):
        total.give(number, value)
    return total.total()


def collect(logs: Log, function: Callable[[LoggedData], T], *, executor: Executor | None = None) -> list[T]:
    """The function's result for every shard, in the order of the shards."""
    tasks = _tasks(logs)
    results = dict(_executor(logs, executor).run(OnShard(function), tasks))
    return [results[number] for number in range(len(tasks))]


def sample(
    logs: Log, most_rows: int, *, seed: int = 0, least: int = LEAST_USERS, executor: Executor | None = None
) -> LoggedData:
    """Sample users with about ``most_rows`` decisions, ordered by their ids; the same whatever the shards.

    Args:
        logs: a log in memory or in shards.
        most_rows: number of decisions at which to stop.
        seed: random seed of the draw.
        least: number of users to draw even if they have more decisions.
        executor: runs the pass over the shards; None is this process.
    """
    if isinstance(logs, LoggedData):
        return draw([logs], most_rows, seed, least)
    share = 1.3 * most_rows / max(logs.rows, 1)
    while True:
        # Only users with small hashes can be in the sample, so no process sends back the others.
        small = partial(below_share, most_rows=most_rows, seed=seed, least=least, share=share)
        parts = [part for part in collect(logs, small, executor=executor) if part is not None]
        if parts:
            drawn = draw(parts, most_rows, seed, least)
            if share >= 1 or (len(drawn) >= most_rows and drawn.n_users >= least):
                return drawn
        share *= 2


def below_share(
    logs: LoggedData, *, most_rows: int, seed: int, least: int, share: float
) -> LoggedData | None:
    """The users of a shard whose hash is in the lowest ``share`` of all hashes; None if there are none."""
    if share < 1:
        chosen = share_of(hash_users(logs.user_ids, "sample", seed)) < share
        if not chosen.any():
            return None
        logs = replace(logs.select(chosen[logs.user_codes]))
    return smallest(logs, most_rows, seed, least)


def _executor(logs: Log, executor: Executor | None) -> Executor:
    """A log in memory is processed here; it is never sent to other processes."""
    return Serial() if executor is None or isinstance(logs, LoggedData) else executor


def _tasks(logs: Log) -> list[Any]:
    return [logs] if isinstance(logs, LoggedData) else list(logs.files)
