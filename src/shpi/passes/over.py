"""One pass over a log: in memory it is a single shard, so there is one path of code."""

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
    """The sum of the function over all shards; the same bits whoever computes it, in whatever order.

    Args:
        logs: a log in memory, which is one shard, or a folder of shards.
        function: from the log of a shard to something that can be added. For processes it must be importable.
        executor: who does it; None is this process.
        add: how two are added.
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
    """Users with about ``most_rows`` decisions in the order of their ids: the same ones whatever the shards.

    Args:
        logs: a log in memory or in shards.
        most_rows: number of decisions at which it is enough.
        seed: random seed of the draw.
        least: number of users that are drawn even if they have more decisions.
        executor: who passes over the shards; None is this process.
    """
    if isinstance(logs, LoggedData):
        return draw([logs], most_rows, seed, least)
    share = 1.3 * most_rows / max(logs.rows, 1)
    while True:
        # Only users with small hashes are looked at: a process need not send what the sum throws away.
        small = partial(_below, most_rows=most_rows, seed=seed, least=least, share=share)
        parts = [part for part in collect(logs, small, executor=executor) if part is not None]
        if parts:
            drawn = draw(parts, most_rows, seed, least)
            if share >= 1 or (len(drawn) >= most_rows and drawn.n_users >= least):
                return drawn
        share *= 2


def _below(logs: LoggedData, *, most_rows: int, seed: int, least: int, share: float) -> LoggedData | None:
    """The users of a shard whose hash is below a share of all hashes; None if there are none."""
    if share < 1:
        chosen = share_of(hash_users(logs.user_ids, "sample", seed)) < share
        if not chosen.any():
            return None
        logs = replace(logs.select(chosen[logs.user_codes]))
    return smallest(logs, most_rows, seed, least)


def _executor(logs: Log, executor: Executor | None) -> Executor:
    """A log in memory is where it is: nobody else gets it."""
    return Serial() if executor is None or isinstance(logs, LoggedData) else executor


def _tasks(logs: Log) -> list[Any]:
    return [logs] if isinstance(logs, LoggedData) else list(logs.files)
