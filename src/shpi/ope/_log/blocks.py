"""A log as blocks of whole users: the same blocks in memory and in shards, whatever the shards.

A user's hash says in which of B blocks the user is, and B follows from the number of decisions. Within a
block users are in the order of their ids. So every sum over a block has the same terms in the same order, and
the sum over blocks is taken in a fixed tree (`shpi.passes`): the bits of an evaluation do not depend on how a
log was cut into shards, nor on who did the work.

A log in memory is cut when a block is needed. The shards of a larger one are read once, sorted by block into
runs, and gathered into blocks: two passes, after which a block is a folder of arrays that are mapped.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shpi._core.hashing import hash_users, part_of
from shpi.data._log.slicing import join
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.errors import DataError
from shpi.ope._log.scratch import Scratch, read_log, require_shared, write_log
from shpi.passes import Executor, Serial, collect
from shpi.protocols import Int64Array

ROWS = 1 << 16  # about so many decisions in a block
CELLS = 1 << 25  # and at most about so many pairs of decision and action


class Blocks(Protocol):
    """Numbered from 0; each can be opened as often as needed."""

    @property
    def places(self) -> Sequence[Int64Array]:
        """For each block, where its users are among all users, who are in the order of their ids."""
        ...

    def open(self, number: int) -> LoggedData:
        """The log of one block."""
        ...


def blocks_for(rows: int, actions: int) -> int:
    """How many blocks so many decisions make."""
    return max(1, -(-rows // max(1, min(ROWS, CELLS // actions))))


def _block_of_user(ids: NDArray[Any], count: int) -> Int64Array:
    if count == 1:
        return np.zeros(len(ids), dtype=np.int64)
    return part_of(hash_users(ids, "shard"), count)


# ---------------------------------------------------------------------- in memory


class InMemory:
    """The blocks of a log in memory."""

    def __init__(self, logs: LoggedData) -> None:
        self._logs, codes = logs, logs.user_codes
        block = _block_of_user(logs.user_ids, blocks_for(len(logs), logs.n_actions))[codes]  # [N]
        order = np.lexsort((codes, block))
        cuts = np.flatnonzero(np.diff(block[order])) + 1
        self._members = np.split(order, cuts)
        self._codes = [codes[members] for members in self._members]
        self.places = [np.unique(mine) for mine in self._codes]

    def open(self, number: int) -> LoggedData:
        """A log of one block in order is itself."""
        members, codes = self._members[number], self._codes[number]
        if len(self._members) == 1 and (np.diff(members) == 1).all():
            return self._logs
        logs = self._logs.select(members)
        vars(logs)["user_codes"] = np.searchsorted(self.places[number], codes)
        return logs


# ---------------------------------------------------------------------- in a folder


@dataclass(frozen=True, kw_only=True, eq=False)
class InFolder:
    """Blocks that were written into a temporary folder, for logs in shards and for other processes."""

    scratch: Scratch
    rest: Mapping[str, Any]  # what a log is beside its arrays
    places: Sequence[Int64Array]

    def open(self, number: int) -> LoggedData:
        """Mapped arrays."""
        return read_log(_folder_of(self.scratch.path, number), self.rest)

    def __reduce__(self) -> tuple[Any, ...]:  # places are for the one who asks
        return _in_folder, (self.scratch, self.rest)

    @classmethod
    def of_log(cls, logs: LoggedData) -> InFolder:
        """Write a log that is in memory, for other processes."""
        scratch, blocks = Scratch(), InMemory(logs)
        rest: dict[str, Any] = {}
        for number in range(len(blocks.places)):
            rest = write_log(blocks.open(number), _folder_of(scratch.path, number))
        return cls(scratch=scratch, rest=rest, places=blocks.places)

    @classmethod
    def of_shards(cls, source: ShardedLog, executor: Executor | None = None) -> InFolder:
        """Sort every shard by block, then gather the blocks."""
        scratch, count = Scratch(), blocks_for(source.rows, len(source.action_space))
        runs = collect(source, partial(_sorted_run, scratch.path, count), executor=executor)
        if not runs:
            raise DataError(expected="a log with decisions", found="an empty one")
        tables = np.stack([run.bounds for run in runs])  # [shards, B + 1]
        filled = np.flatnonzero(np.diff(tables, axis=1).any(axis=0))
        gather = partial(_gathered, scratch.path, [(run.folder, run.rest) for run in runs])
        tasks = [(number, tables[:, block : block + 2]) for number, block in enumerate(filled)]
        gathered = dict((executor or Serial()).run(gather, tasks))
        for run in runs:
            shutil.rmtree(run.folder, ignore_errors=True)
        ids = np.concatenate([gathered[number][0] for number in range(len(tasks))])
        ranks = np.empty(len(ids), dtype=np.int64)
        ranks[np.argsort(ids, kind="stable")] = np.arange(len(ids))
        sizes = [len(gathered[number][0]) for number in range(len(tasks))]
        places = np.split(ranks, np.cumsum(sizes)[:-1])
        return cls(scratch=scratch, rest=gathered[0][1], places=places)


def _in_folder(scratch: Any, rest: Mapping[str, Any]) -> InFolder:
    return InFolder(scratch=scratch, rest=rest, places=())


def _folder_of(path: Path, number: int) -> Path:
    return path / f"block-{number:06d}"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Run:
    """A shard whose trajectories are sorted by block."""

    folder: Path
    rest: Mapping[str, Any]
    bounds: Int64Array  # [B + 1] where each block's trajectories begin


def _sorted_run(place: Path, count: int, logs: LoggedData) -> _Run:
    require_shared(place)
    codes = logs.user_codes
    block = _block_of_user(logs.user_ids, count)[codes]
    order = np.lexsort((codes, block))
    if (np.diff(order) != 1).any():
        logs = logs.select(order)
    # Names need not tell shards apart by number: no user is in two of them.
    folder = place / f"run-{hash_users(logs.user_ids[:1], 'shard')[0]:016x}-{logs.n_trajectories}"
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
    rest = write_log(logs, folder)
    bounds = np.searchsorted(block[order], np.arange(count + 1))
    return _Run(folder=folder, rest=rest, bounds=bounds.astype(np.int64))


def _gathered(
    place: Path, runs: Sequence[tuple[Path, Mapping[str, Any]]], task: tuple[int, Int64Array]
) -> tuple[NDArray[Any], Mapping[str, Any]]:
    """The ids of a block's users in order, and what a log is beside its arrays."""
    require_shared(place)
    number, bounds = task  # [shards, 2]
    pieces = [
        read_log(folder, rest).select(np.arange(first, last))
        for (folder, rest), (first, last) in zip(runs, bounds, strict=True)
        if first < last
    ]
    logs = join(pieces)
    order = np.argsort(logs.user_codes, kind="stable")
    if (np.diff(order) != 1).any():
        logs = logs.select(order)
    folder = _folder_of(place, number)
    shutil.rmtree(folder, ignore_errors=True)
    rest = write_log(logs, folder)
    return logs.user_ids, rest
