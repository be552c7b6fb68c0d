"""Nested split of users for model selection: confirmation users, and folds of the others.

Hashes of the users' ids determine the split, so it is the same in memory and in shards. Shards are rewritten,
one folder for each group, in a temporary folder that is deleted at the end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from shpi._core.hashing import UInt64Array, hash_users
from shpi.data._log.users import folds_by_hash, largest_held_out, split_hashes
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog, divide_shards, join_shards
from shpi.errors import DataError
from shpi.files.atomic import writing
from shpi.passes import Executor, collect
from shpi.protocols import Int64Array

Log = LoggedData | ShardedLog


@dataclass(frozen=True, kw_only=True)
class Division:
    """The parts of a log, each of whole users."""

    inner: Log  # who choose
    confirm: Log  # who judge what was chosen
    folds: int
    fold: Callable[[int], Log]  # of the inner users
    without: Callable[[int], Log]  # inner users who are not in that fold
    longest_of_all: int  # decisions of the longest trajectory, but no more than every group has


@contextmanager
def divided(
    logs: Log, confirm: float, folds: int, seeds: tuple[int, int], executor: Executor | None = None
) -> Iterator[Division]:
    """Divide the users of a log, for as long as the parts are needed.

    Args:
        logs: the log.
        confirm: share of the users that confirm.
        folds: number of folds of the others.
        seeds: random seeds of the split and of the folds.
        executor: processes the shards; None is this process.
    """
    users = collect(logs, partial(_users, seeds=seeds), executor=executor)
    everybody = _Users(*(np.concatenate(columns) for columns in zip(*map(_columns, users), strict=True)))
    group = _groups(everybody, confirm, folds)
    longest = min(int(everybody.longest[group == number].max()) for number in range(folds + 1))
    if isinstance(logs, LoggedData):
        yield _in_memory(logs, group, folds, longest)
        return
    with writing(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory(prefix="shpi-select-") as place:
        ends = np.cumsum([len(shard.longest) for shard in users])[:-1]
        folders = [Path(place) / f"{number}" for number in range(folds + 1)]
        parts = divide_shards(logs, np.split(group, ends), folders, executor=executor)
        yield Division(
            inner=join_shards(parts[:folds]),
            confirm=parts[folds],
            folds=folds,
            fold=lambda fold: parts[fold],
            without=lambda fold: join_shards([*parts[:fold], *parts[fold + 1 : folds]]),
            longest_of_all=longest,
        )


def _in_memory(logs: LoggedData, group: Int64Array, folds: int, longest: int) -> Division:
    of_trajectory = group[logs.user_codes]
    inner = logs.select(of_trajectory < folds)
    of_inner = of_trajectory[of_trajectory < folds]
    return Division(
        inner=inner,
        confirm=logs.select(of_trajectory == folds),
        folds=folds,
        fold=lambda fold: inner.select(of_inner == fold),
        without=lambda fold: inner.select(of_inner != fold),
        longest_of_all=longest,
    )


@dataclass(frozen=True)
class _Users:
    """What divides users, and their longest trajectories [users]."""

    split: UInt64Array
    fold: UInt64Array
    longest: Int64Array


def _users(logs: LoggedData, seeds: tuple[int, int]) -> _Users:
    longest = np.zeros(logs.n_users, dtype=np.int64)
    np.maximum.at(longest, logs.user_codes, np.diff(logs.offsets))
    ids = logs.user_ids
    return _Users(split_hashes(logs, seeds[0]), hash_users(ids, "fold", seeds[1]), longest)


def _columns(users: _Users) -> tuple[UInt64Array, UInt64Array, Int64Array]:
    return users.split, users.fold, users.longest


def _groups(users: _Users, confirm: float, folds: int) -> Int64Array:
    """The fold of each user, or ``folds`` for those who confirm [users]; folds differ by one user at most."""
    everybody = len(users.split)
    largest = largest_held_out(users.split, confirm) if everybody > 1 else np.uint64(0)
    inner = np.flatnonzero(users.split > largest)
    if len(inner) < 2 * folds or everybody - len(inner) < 2:
        raise DataError(
            expected=f"at least two users for each of {folds} folds and two to confirm",
            found=f"{len(inner)} and {everybody - len(inner)} users",
            where="select",
        )
    group = np.full(everybody, folds, dtype=np.int64)
    group[inner] = folds_by_hash(users.fold[inner], folds)
    return group
