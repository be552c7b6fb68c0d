"""Logs larger than memory: prepared once into shards of whole users, then passed over shard by shard.

Stage one streams the table and deals its rows into buckets by a hash of the user. Stage two reads one bucket
after the other, sorts and checks it, and writes it as a canonical file. Memory is bounded by a block and by
the largest bucket, whatever the number of rows. A pass is *map over shards, then reduce*, so sums over shards
are the sums over the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import polars as pl

from shpi._core.executors import executor_of
from shpi._core.hashing import RULE, hash_users
from shpi._core.progress import progress_bar
from shpi.data._log.ledger import Ledger
from shpi.data._log.users import largest_held_out, split_hashes
from shpi.data._read.encoding import Encoding, learn_encoding
from shpi.data._read.read import Duplicates, Invalid, asked, known_part, read_table, with_counted_column
from shpi.data._read.sources import TableSource, open_table
from shpi.data._shards.manifest import MANIFEST, VERSION, ShardCounts, checked_files, write_manifest
from shpi.data.actions import ActionSpace
from shpi.data.canonical import read_canonical, read_header, write_canonical
from shpi.data.columns import Columns, expand
from shpi.data.logged import LoggedData
from shpi.data.question import Metric
from shpi.data.question.count import observe
from shpi.data.schema import ContextSchema
from shpi.data.tables.join import join_events
from shpi.errors import ConfigError, DataError
from shpi.files.atomic import new_folder
from shpi.files.reading import read_json
from shpi.files.seal import read_seal

__all__ = ["MANIFEST", "VERSION", "ShardedLog", "deal", "prepare_shards", "split_shards", "write_shards"]

T = TypeVar("T")

ROWS_PER_SHARD = 500_000
ROWS_PER_PART = 1_000_000  # rows held while they are dealt into buckets
ROW = "__shpi_row"  # the row number in the source, kept for error messages


@dataclass(frozen=True, kw_only=True)
class ShardedLog:
    """A prepared folder. Iterating gives one `LoggedData` per shard; no user is in two shards."""

    folder: Path
    files: tuple[Path, ...]
    ledger: Ledger

    @classmethod
    def open(cls, folder: str | Path) -> ShardedLog:
        """Open a folder made by `prepare_shards`."""
        place = Path(folder)
        try:
            manifest = read_json(place / MANIFEST)
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(
                expected=f"a folder with {MANIFEST}",
                found="none",
                where=str(place),
                remedy="make it with shpi.data.shards.prepare_shards(source, columns, folder)",
            ) from None
        return cls(
            folder=place, files=checked_files(manifest, place), ledger=Ledger.from_json(manifest["ledger"])
        )

    def __len__(self) -> int:
        return len(self.files)

    @property
    def rows(self) -> int:
        """The decisions of all shards."""
        return self.ledger.rows_used

    @cached_property
    def action_space(self) -> ActionSpace:
        """The actions, the same in all shards."""
        return ActionSpace.from_json(read_header(self.files[0], verify=False)["actions"])

    @cached_property
    def schema(self) -> ContextSchema:
        """The context columns, the same in all shards."""
        return ContextSchema.from_json(read_header(self.files[0], verify=False)["schema"])

    def fingerprint(self) -> str:
        """A short digest of the seals of all shards: another one, if anything in them differs."""
        seals = "".join(str(read_seal(file)) for file in self.files)
        return blake2b(seals.encode(), digest_size=8).hexdigest()

    def __iter__(self) -> Iterator[LoggedData]:
        return (read_canonical(file) for file in self.files)

    def map(self, function: Callable[[LoggedData], T], *, jobs: int = 1) -> list[T]:
        """The function's result for every shard, in order; with ``jobs`` > 1 in processes.

        The function must then be importable. See `shpi.passes` for sums and other executors.
        """
        results = dict(executor_of(jobs).run(OnShard(function), self.files))
        return [results[number] for number in range(len(self))]


@dataclass(frozen=True)
class OnShard(Generic[T]):
    """Opens a shard where it is needed: a path is sent to a process, not an array."""

    function: Callable[[LoggedData], T]

    def __call__(self, shard: LoggedData | Path) -> T:
        """The function's result for a shard, given as a log or as a file."""
        return self.function(shard if isinstance(shard, LoggedData) else read_canonical(shard))


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
) -> ShardedLog:
    """Prepare a table into ``folder``, which must not exist yet and appears only when it is complete."""
    place = Path(folder)
    if place.exists():
        raise ConfigError(
            expected="a folder that does not exist yet",
            found="one that does",
            where=str(place),
            remedy="open it with ShardedLog.open, or remove it",
        )
    chosen = columns if isinstance(columns, Columns) else Columns.from_toml(columns)
    table, chosen = join_events(open_table(source), chosen)
    chosen = with_counted_column(chosen, None, table.columns)
    encoding = learn_encoding(table, chosen, action_features=action_features)
    rows = table.frame.select(pl.len()).collect().item()
    count = shards if shards is not None else max(1, -(-rows // rows_per_shard))
    if count < 1:
        raise ConfigError(expected="at least one shard", found=str(shards))
    with new_folder(place) as draft:
        with progress_bar(f"preparing {count} shards", 2 * rows, progress) as advance:
            _deal(table, chosen, encoding, draft, count, advance)
            files, counts = _finish(table, chosen, encoding, draft, count, invalid, duplicates, advance)
        counts = _settle(table, chosen, [draft / name for name in files]) or counts
        write_manifest(draft, files, counts, hash_rule=RULE)
    return ShardedLog.open(place)


def write_shards(
    parts: Iterable[LoggedData], folder: str | Path, *, hash_rule: str | None = None
) -> ShardedLog:
    """Write logs that are in memory, no user in two of them, as the shards of a new folder."""
    files, counts = [], []
    with new_folder(folder) as draft:
        for number, logs in enumerate(parts):
            files.append(f"shard-{number:05d}.parquet")
            if logs.ledger.rows_used != len(logs):  # a part of a log carries the ledger of the whole
                logs = replace(logs, ledger=Ledger(rows_in=len(logs), rows_used=len(logs)))
            counts.append(ShardCounts.of(logs))
            write_canonical(logs, draft / files[-1])
        write_manifest(draft, files, counts, hash_rule=hash_rule)
    return ShardedLog.open(folder)


def split_shards(
    logs: ShardedLog, held_out: float, folders: tuple[str | Path, str | Path], *, seed: int
) -> tuple[ShardedLog, ShardedLog]:
    """Two folders of shards with no user in common, as `LoggedData.split_users` splits the log.

    Args:
        logs: the log.
        held_out: share of the users that the second folder gets.
        folders: the two folders, which must not exist.
        seed: random seed of the split.
    """
    if not 0 < held_out < 1:
        raise ConfigError(expected="a share of held-out users in (0, 1)", found=str(held_out))

    hashes = np.concatenate([split_hashes(shard, seed) for shard in logs])
    if len(hashes) < 2:
        raise DataError(expected="at least two users to split", found="one user")
    largest = largest_held_out(hashes, held_out)

    def side(out: bool) -> Iterator[LoggedData]:
        for shard in logs:
            mine = (split_hashes(shard, seed) <= largest) == out
            if mine.any():
                yield shard.select(mine[shard.user_codes])

    return write_shards(side(False), folders[0]), write_shards(side(True), folders[1])


def deal(logs: LoggedData, folder: str | Path, shards: int) -> ShardedLog:
    """Write a log that is in memory as shards, by the hash of the user."""
    bucket = (hash_users(logs.user_ids, "shard") % np.uint64(shards))[logs.user_codes]
    filled = np.unique(bucket)
    return write_shards((logs.select(bucket == number) for number in filled), folder, hash_rule=RULE)


def _settle(table: TableSource, columns: Columns, files: list[Path]) -> list[ShardCounts]:
    """Ask every shard the map's question; what only the whole log knows is gathered first."""
    if columns.metric is None and columns.churn_after is None and table.known_until is None:
        return []
    metric = None if columns.metric is None else Metric.of(columns.metric)
    end = table.known_until
    if end is None:
        end = max(read_canonical(file).times.max() for file in files)
    observed = None
    if metric is not None and metric.window is not None:
        observed = observe((known_part(read_canonical(file), table) for file in files), metric, end)
    counts = []
    for file in files:
        logs = known_part(read_canonical(file), table)
        logs = asked(logs, metric, columns.churn_after, end, observed)
        write_canonical(logs, file)
        counts.append(ShardCounts.of(logs))
    return counts


def _needed(table: TableSource, columns: Columns, encoding: Encoding) -> list[str]:
    names = dict.fromkeys(columns.single().values())
    names |= dict.fromkeys(feature.name for feature in encoding.schema.features)
    names |= dict.fromkeys(expand("metrics", columns.metrics, table.columns, set()))
    names |= dict.fromkeys([*columns.identity, *encoding.candidate_columns, *encoding.behaviour_columns])
    listed = [name for name in (columns.candidates, columns.behaviour) if name in table.columns]
    return list(names | dict.fromkeys(str(name) for name in listed))


def _deal(
    table: TableSource,
    columns: Columns,
    encoding: Encoding,
    draft: Path,
    count: int,
    advance: Callable[[float], None],
) -> None:
    """Stage one: rows into buckets, in the order of the source."""
    names = [pl.col(name) for name in _needed(table, columns, encoding)]
    key = columns.user if columns.user is not None else ROW
    start, number, held, height = 0, 0, [], 0
    for block in table.blocks(names):
        numbered = block.with_row_index(ROW, offset=start).with_columns(pl.col(ROW).cast(pl.Int64))
        held.append(numbered)
        start, height = start + block.height, height + block.height
        if height >= ROWS_PER_PART:
            _write_parts(held, key, draft, count, number)
            number, held, height = number + 1, [], 0
        advance(block.height)
    if held:
        _write_parts(held, key, draft, count, number)


def _write_parts(held: list[pl.DataFrame], key: str, draft: Path, count: int, number: int) -> None:
    frame = pl.concat(held)
    users = frame[key].unique()
    buckets = hash_users(users.to_list(), "shard") % np.uint64(count)
    bucket_of = pl.DataFrame({key: users, "__bucket": buckets.astype(np.int64)})
    frame = frame.join(bucket_of, on=key, how="left", nulls_equal=True, maintain_order="left")
    for (bucket,), rows in frame.partition_by("__bucket", as_dict=True, include_key=False).items():
        rows.write_parquet(draft / f"part-{bucket:05d}-{number:06d}.parquet", compression="lz4")


def _finish(
    table: TableSource,
    columns: Columns,
    encoding: Encoding,
    draft: Path,
    count: int,
    invalid: Invalid,
    duplicates: Duplicates,
    advance: Callable[[float], None],
) -> tuple[list[str], list[ShardCounts]]:
    """Stage two: each bucket becomes a canonical file."""
    files: list[str] = []
    counts: list[ShardCounts] = []
    for bucket in range(count):
        parts = sorted(draft.glob(f"part-{bucket:05d}-*.parquet"))
        if not parts:
            continue
        frame = pl.concat([pl.read_parquet(file) for file in parts])
        numbers = frame[ROW].to_numpy()
        # What was left out of the table as a whole is entered once.
        once = replace(table, drops=(), notes=()) if files else table
        shard_table = replace(once, frame=frame.lazy(), in_memory=frame, row_numbers=numbers)
        logs = read_table(shard_table, columns, encoding, invalid=invalid, duplicates=duplicates)
        drops = tuple(
            drop if drop.example is None else replace(drop, example=int(numbers[drop.example]))
            for drop in logs.ledger.drops
        )
        logs = replace(logs, ledger=replace(logs.ledger, drops=drops))
        name = f"shard-{bucket:05d}.parquet"
        write_canonical(logs, draft / name)
        files.append(name)
        counts.append(ShardCounts.of(logs))
        for file in parts:
            file.unlink()
        advance(frame.height)
    return files, counts
