"""Cut a log into blocks of whole users: the same blocks for a log in memory and for any cut into shards.

The hash of a user id chooses one of B blocks, and B follows from the number of decisions. Within a block,
users are sorted by id. So every sum over a block has the same terms in the same order, and blocks are added
in a fixed tree (`shpi.passes`): an evaluation gives the same bits however the log was cut into shards, and
however many processes computed it.

A log in memory is cut when a block is needed. The shards of a larger log are read once, sorted by block into
runs, and gathered into blocks. After these two passes a block is a folder of memory-mapped arrays.
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

ROWS = 1 << 16  # decisions per block, approximately
CELLS = 1 << 25  # (decision, action) pairs per block, at most, approximately


class Blocks(Protocol):
    """The blocks of a log, numbered from 0; each can be opened as often as needed."""

    @property
    def places(self) -> Sequence[Int64Array]:
        """For each block, the positions of its users among all users sorted by id."""
        ...

    def open(self, number: int) -> LoggedData:
        """The log of one block."""
        ...


def blocks_for(rows: int, actions: int) -> int:
    """The number of blocks for a log of this size."""
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
        """The log of one block; the whole log itself, uncopied, if it is one block in order."""
        members, codes = self._members[number], self._codes[number]
        if len(self._members) == 1 and (np.diff(members) == 1).all():
            return self._logs
        logs = self._logs.select(members)
        vars(logs)["user_codes"] = np.searchsorted(self.places[number], codes)
        return logs


# ---------------------------------------------------------------------- in a folder


@dataclass(frozen=True, kw_only=True, eq=False)
class InFolder:
    """Blocks written to a temporary folder: for logs in shards, and for worker processes."""

    scratch: Scratch
    rest: Mapping[str, Any]  # the fields of a log that are not arrays
    places: Sequence[Int64Array]

    def open(self, number: int) -> LoggedData:
        """The log of one block, its arrays memory-mapped."""
        return read_log(_folder_of(self.scratch.path, number), self.rest)

    def __reduce__(self) -> tuple[Any, ...]:  # workers do not need the places
        return _in_folder, (self.scratch, self.rest)

    @classmethod
    def of_log(cls, logs: LoggedData) -> InFolder:
        """Write the blocks of a log in memory, for worker processes."""
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
    """The files of one shard, its trajectories sorted by block."""

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
    # The first user's hash names the run of this shard: no user is in two shards.
    folder = place / f"run-{hash_users(logs.user_ids[:1], 'shard')[0]:016x}-{logs.n_trajectories}"
    shutil.rmtree(folder, ignore_errors=True)  # left by a process that was killed
    rest = write_log(logs, folder)
    bounds = np.searchsorted(block[order], np.arange(count + 1))
    return _Run(folder=folder, rest=rest, bounds=bounds.astype(np.int64))


def _gathered(
    place: Path, runs: Sequence[tuple[Path, Mapping[str, Any]]], task: tuple[int, Int64Array]
) -> tuple[NDArray[Any], Mapping[str, Any]]:
    """Write one block; return the sorted ids of its users, and the log's fields that are not arrays."""
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
