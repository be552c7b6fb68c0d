"""Logs larger than memory: split once into shards of whole users, then processed shard by shard.

`shpi.data._shards.prepare` turns a table into shards with constant memory. A pass is *map over shards, then
reduce*, so sums over shards are the sums over the log. A folder may also be at a URI, such as
s3://bucket/shards: a shard is then fetched and kept only while it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import polars as pl

from shpi._core.executors import Executor, Serial, executor_of
from shpi._core.hashing import RULE, hash_users, part_of
from shpi._core.progress import progress_bar
from shpi.data._log.ledger import Ledger
from shpi.data._log.users import largest_held_out, split_hashes
from shpi.data._read.assemble import Duplicates
from shpi.data._read.encoding import learn_encoding
from shpi.data._read.read import Invalid, with_counted_column
from shpi.data._read.sources import open_table
from shpi.data._shards.divide import divide, read_shard, shard_name, write_shard
from shpi.data._shards.folder import new_shards, require_absent
from shpi.data._shards.manifest import MANIFEST, VERSION, checked_files, write_manifest
from shpi.data._shards.prepare import ROW, ROWS_PER_PART, Preparation, remove_work
from shpi.data.actions import ActionSpace
from shpi.data.canonical import read_header
from shpi.data.columns import Columns
from shpi.data.logged import LoggedData
from shpi.data.schema import ContextSchema
from shpi.data.tables.join import join_events
from shpi.errors import ConfigError, DataError
from shpi.files.reading import LARGEST_JSON, parse_json, read_json
from shpi.files.remote import Place, Remote, local, place_of
from shpi.files.seal import read_seal
from shpi.protocols import Int64Array

__all__ = [
    "MANIFEST",
    "ROW",
    "ROWS_PER_PART",
    "VERSION",
    "ShardedLog",
    "deal",
    "divide_shards",
    "join_shards",
    "prepare_shards",
    "split_shards",
    "write_shards",
]

T = TypeVar("T")

ROWS_PER_SHARD = 500_000  # approximate number of rows


@dataclass(frozen=True, kw_only=True)
class ShardedLog:
    """A prepared folder. Iterating gives one `LoggedData` per shard; no user is in two shards."""

    folder: Place
    files: tuple[Place, ...]
    ledger: Ledger
    hash_rule: str | None = None  # rule that assigned users to shards; None: as they were given

    @classmethod
    def open(cls, folder: str | Path | Remote) -> ShardedLog:
        """Open a folder made by `prepare_shards`, on this machine or at a URI."""
        place = place_of(folder)
        try:
            manifest = read_manifest(place)
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(
                expected=f"a folder with {MANIFEST}",
                found="none",
                where=str(place),
                remedy="make it with shpi.data.shards.prepare_shards(source, columns, folder)",
            ) from None
        files = checked_files(manifest, place)
        ledger = Ledger.from_json(manifest["ledger"])
        return cls(folder=place, files=files, ledger=ledger, hash_rule=manifest.get("hash"))

    def __len__(self) -> int:
        return len(self.files)

    def __str__(self) -> str:
        return f"{self.rows:,} decisions in {len(self)} shards"

    @property
    def rows(self) -> int:
        """The number of decisions in all shards."""
        return self.ledger.rows_used

    @cached_property
    def _header(self) -> dict[str, Any]:
        with local(self.files[0]) as path:
            return read_header(path, verify=False)

    @cached_property
    def action_space(self) -> ActionSpace:
        """The actions, the same in all shards."""
        return ActionSpace.from_json(self._header["actions"])

    @cached_property
    def schema(self) -> ContextSchema:
        """The context columns, the same in all shards."""
        return ContextSchema.from_json(self._header["schema"])

    @property
    def propensity_mode(self) -> str:
        """Where propensities come from: "logged", "estimated" or "absent"."""
        mode: str = self._header["propensity_mode"]
        return mode

    def fingerprint(self) -> str:
        """A short digest of the seals of all shards; it differs if anything in them differs."""
        seals = "".join(str(file_seal(file)) for file in self.files)
        return blake2b(seals.encode(), digest_size=8).hexdigest()

    def __iter__(self) -> Iterator[LoggedData]:
        return map(read_shard, self.files)

    def map(self, function: Callable[[LoggedData], T], *, jobs: int = 1) -> list[T]:
        """The function's result for every shard, in order; in processes if ``jobs`` > 1.

        The function must then be importable. See `shpi.passes` for sums and other executors.
        """
        results = dict(executor_of(jobs).run(OnShard(function), self.files))
        return [results[number] for number in range(len(self))]


@dataclass(frozen=True)
class OnShard(Generic[T]):
    """Opens a shard where it is processed, so that a path is sent to a process, not an array."""

    function: Callable[[LoggedData], T]

    def __call__(self, shard: LoggedData | Place) -> T:
        """The function's result for a shard, given as a log or as a file."""
        return self.function(shard if isinstance(shard, LoggedData) else read_shard(shard))


def file_seal(file: Place) -> str | None:
    """A digest of a shard's contents: its seal, or for a remote shard the sha256 of the manifest."""
    return file.sha256 if isinstance(file, Remote) else read_seal(file)


def read_manifest(place: Place) -> Any:
    """The manifest of a folder; a missing one is a FileNotFoundError."""
    if isinstance(place, Remote):
        return parse_json((place / MANIFEST).read(LARGEST_JSON + 1), str(place / MANIFEST))
    return read_json(place / MANIFEST)


def prepare_shards(
    source: Any,
    columns: Columns | str | Path,
    folder: str | Path,
    *,
    shards: int | None = None,
    rows_per_shard: int = ROWS_PER_SHARD,
    invalid: Invalid = "error",
    duplicates: Duplicates = "drop",
    action_features: Any = None,
    progress: bool | None = None,
    resume: str | Path | None = None,
) -> ShardedLog:
    """Prepare a table into ``folder``, which must not exist yet and appears only when it is complete.

    Args:
        source: a table, as `LoggedData.read` takes it; files may be at a URI.
        columns: which column means what.
        folder: the folder to make, on this machine or at a URI such as s3://bucket/shards.
        shards: number of shards; None derives it from ``rows_per_shard``.
        rows_per_shard: approximate number of rows in a shard.
        invalid: what happens to rows with unusable values.
        duplicates: what happens to decisions that repeat an earlier one.
        action_features: features of the actions.
        progress: show a progress bar; by default in a terminal.
        resume: a folder for unfinished work. Called again with it, an interrupted run continues after the
            last stage and the last shard that were finished. It is removed at the end.
    """
    place = place_of(folder)
    require_absent(place)
    chosen = columns if isinstance(columns, Columns) else Columns.from_toml(columns)
    table, chosen = join_events(open_table(source), chosen)
    chosen = with_counted_column(chosen, None, table.columns)
    with progress_bar("looking at the columns", None, progress):
        encoding = learn_encoding(table, chosen, action_features=action_features)
        rows = table.frame.select(pl.len()).collect().item()
    count = shards if shards is not None else max(1, -(-rows // rows_per_shard))
    if count < 1:
        raise ConfigError(expected="at least one shard", found=str(shards))
    preparation = Preparation(
        table=table,
        columns=chosen,
        encoding=encoding,
        count=count,
        invalid=invalid,
        duplicates=duplicates,
    )
    work = None if resume is None else Path(resume)
    with new_shards(place) as draft:
        with progress_bar(f"preparing {count} shards", 2 * rows, progress) as advance:
            files, counts = preparation.write(draft, work, advance, rows)
        write_manifest(draft, files, counts, hash_rule=RULE)
    remove_work(work)
    return ShardedLog.open(place)


def write_shards(
    parts: Iterable[LoggedData], folder: str | Path, *, hash_rule: str | None = None
) -> ShardedLog:
    """Write logs in memory as the shards of a new folder; no user may be in two of them."""
    place = place_of(folder)
    files, counts = [], []
    with new_shards(place) as draft:
        for number, logs in enumerate(parts):
            files.append(shard_name(number))
            counts.append(write_shard(logs, draft / files[-1]))
        write_manifest(draft, files, counts, hash_rule=hash_rule)
    return ShardedLog.open(place)


def split_shards(
    logs: ShardedLog,
    held_out: float,
    folders: tuple[str | Path, str | Path],
    *,
    seed: int,
    executor: Executor | None = None,
) -> tuple[ShardedLog, ShardedLog]:
    """Two folders of shards with no user in common, as `LoggedData.split_users` splits the log.

    Args:
        logs: the log.
        held_out: share of the users that the second folder gets.
        folders: the two folders, which must not exist.
        seed: random seed of the split.
        executor: runs the reading and writing; None is this process. Workers must see this machine's files.
    """
    if not 0 < held_out < 1:
        raise ConfigError(expected="a share of held-out users in (0, 1)", found=str(held_out))
    who = executor or Serial()
    hashes = dict(who.run(OnShard(partial(split_hashes, seed=seed)), logs.files))
    in_order = np.concatenate([hashes[number] for number in range(len(logs))])
    if len(in_order) < 2:
        raise DataError(expected="at least two users to split", found="one user")
    largest = largest_held_out(in_order, held_out)
    groups = [(hashes[number] <= largest).astype(np.int64) for number in range(len(logs))]
    train, judged = divide_shards(logs, groups, folders, executor=who)
    return train, judged


def divide_shards(
    logs: ShardedLog,
    groups: Sequence[Int64Array],
    folders: Sequence[str | Path],
    *,
    executor: Executor | None = None,
) -> tuple[ShardedLog, ...]:
    """Folders of shards with no user in common.

    Args:
        logs: the log.
        groups: for every shard, the folder number of each of its users, in the order of
            `LoggedData.user_ids`. Every folder must get a user.
        folders: the folders, which must not exist.
        executor: runs the reading and writing; None is this process. Workers must see this machine's files.
    """
    places = [place_of(folder) for folder in folders]
    divide(logs.files, groups, places, hash_rule=logs.hash_rule, executor=executor or Serial())
    return tuple(map(ShardedLog.open, places))


def join_shards(parts: Sequence[ShardedLog]) -> ShardedLog:
    """The shards of several folders as one log, without copying; no user may be in two of them."""
    return ShardedLog(
        folder=parts[0].folder,
        files=tuple(file for part in parts for file in part.files),
        ledger=Ledger.sum(part.ledger for part in parts),
        hash_rule=parts[0].hash_rule,
    )


def deal(logs: LoggedData, folder: str | Path, shards: int) -> ShardedLog:
    """Write a log in memory as shards, assigning users by their hash."""
    bucket = part_of(hash_users(logs.user_ids, "shard"), shards)[logs.user_codes]
    filled = np.unique(bucket)
    return write_shards((logs.select(bucket == number) for number in filled), folder, hash_rule=RULE)
