"""Divide the users of a folder of shards among several new folders."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from shpi._core.executors import Executor
from shpi.data._log.ledger import Ledger
from shpi.data._shards.folder import new_shards
from shpi.data._shards.manifest import ShardCounts, write_manifest
from shpi.data.canonical import read_canonical, write_canonical
from shpi.data.logged import LoggedData
from shpi.files.remote import Place, local
from shpi.protocols import Int64Array


def shard_name(number: int) -> str:
    """The name of a shard's file."""
    return f"shard-{number:05d}.parquet"


def read_shard(file: Place) -> LoggedData:
    """The log of one shard; a remote file is fetched and kept only while it is read."""
    with local(file) as path:
        return read_canonical(path)


def write_shard(logs: LoggedData, path: Path) -> ShardCounts:
    """Write one shard and return its counts for the manifest."""
    if logs.ledger.rows_used != len(logs):  # a part of a log carries the ledger of the whole
        logs = replace(logs, ledger=Ledger(rows_in=len(logs), rows_used=len(logs)))
    write_canonical(logs, path)
    return ShardCounts.of(logs)


def divide(
    files: Sequence[Place],
    groups: Sequence[Int64Array],
    folders: Sequence[Place],
    *,
    hash_rule: str | None,
    executor: Executor,
) -> None:
    """Write a new folder of shards for each group of users.

    Args:
        files: the shards.
        groups: for every shard, the group of each of its users, in the order of `LoggedData.user_ids`.
        folders: the folder of each group, which must not exist. Every group must have a user.
        hash_rule: name of the hash that assigned users to the shards.
        executor: runs the reading and writing; its workers must see this machine's files.
    """
    with ExitStack() as stack:
        drafts = tuple(stack.enter_context(new_shards(folder)) for folder in folders)
        tasks = list(zip(range(len(files)), files, groups, strict=True))
        written = dict(executor.run(_Divide(drafts=drafts), tasks))
        for group, draft in enumerate(drafts):
            of_shards = {number: counts[group] for number, counts in sorted(written.items())}
            filled = {number: counts for number, counts in of_shards.items() if counts is not None}
            names = [shard_name(number) for number in filled]
            write_manifest(draft, names, list(filled.values()), hash_rule=hash_rule)


@dataclass(frozen=True, kw_only=True)
class _Divide:
    """Write the users of each group in one shard to that group's folder; picklable."""

    drafts: tuple[Path, ...]

    def __call__(self, shard: tuple[int, Place, Int64Array]) -> list[ShardCounts | None]:
        """The counts of each group; None for a group without a user in this shard."""
        number, file, groups = shard
        logs, name = read_shard(file), shard_name(number)
        return [
            write_shard(logs.select(mine[logs.user_codes]), draft / name) if mine.any() else None
            for mine, draft in ((groups == group, draft) for group, draft in enumerate(self.drafts))
        ]
