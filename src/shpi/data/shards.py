"""Logs larger than memory: prepared once into shards of whole users, then passed over shard by shard.

Stage one streams the table and deals its rows into buckets by a hash of the user. Stage two reads one bucket
after the other, sorts and checks it, and writes it as a canonical file. Memory is bounded by a block and by
the largest bucket, whatever the number of rows. A pass is *map over shards, then reduce*, so sums over shards
are the sums over the log.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from shpi.data.canonical import read_canonical, write_canonical
from shpi.data.columns import Columns, expand
from shpi.data.encoding import Encoding, learn_encoding
from shpi.data.ledger import Ledger
from shpi.data.logged import LoggedData
from shpi.data.read import Duplicates, Invalid, read_table
from shpi.data.sources import TableSource, open_table
from shpi.errors import ConfigError, DataError
from shpi.progress import progress_bar

T = TypeVar("T")

MANIFEST = "manifest.json"
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
            manifest = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(
                expected=f"a folder with {MANIFEST}",
                found="none",
                where=str(place),
                remedy="make it with shpi.data.shards.prepare_shards(source, columns, folder)",
            ) from None
        files = tuple(place / name for name in manifest["files"])
        absent = [file for file in files if not file.exists()]
        if absent:
            raise DataError(
                expected="every shard of the manifest", found=f"{absent[0].name} missing", where=str(place)
            )
        return cls(folder=place, files=files, ledger=Ledger.from_json(manifest["ledger"]))

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[LoggedData]:
        return (read_canonical(file) for file in self.files)

    def map(self, function: Callable[[LoggedData], T], *, jobs: int = 1) -> list[T]:
        """The function's result for every shard, in order; with ``jobs`` > 1 in processes."""
        if jobs <= 1:
            return [function(shard) for shard in self]
        with ProcessPoolExecutor(max_workers=jobs) as pool:
            return list(pool.map(_apply, [function] * len(self), self.files))


def _apply(function: Callable[[LoggedData], T], file: Path) -> T:
    return function(read_canonical(file))


def prepare_shards(
    source: Any,
    columns: Columns | str | Path,
    folder: str | Path,
    *,
    shards: int | None = None,
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
    table = open_table(source)
    encoding = learn_encoding(table, chosen, action_features=action_features)
    rows = table.frame.select(pl.len()).collect().item()
    count = shards if shards is not None else max(1, -(-rows // ROWS_PER_SHARD))
    if count < 1:
        raise ConfigError(expected="at least one shard", found=str(shards))
    draft = place.with_name(f".{place.name}.{os.getpid()}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        with progress_bar(f"preparing {count} shards", 2 * rows, progress) as advance:
            _deal(table, chosen, encoding, draft, count, advance)
            files, ledgers = _finish(table, chosen, encoding, draft, count, invalid, duplicates, advance)
        ledger = Ledger.sum(ledgers)
        manifest = {"version": 1, "files": files, "ledger": ledger.to_json(), "rows": ledger.rows_used}
        (draft / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return ShardedLog.open(place)


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
    key = pl.col(columns.user) if columns.user is not None else pl.col(ROW)
    start, part, held, height = 0, 0, [], 0
    for block in table.blocks(names):
        numbered = block.with_row_index(ROW, offset=start).with_columns(pl.col(ROW).cast(pl.Int64))
        held.append(numbered)
        start, height = start + block.height, height + block.height
        if height >= ROWS_PER_PART:
            _write_parts(held, key, draft, count, part)
            part, held, height = part + 1, [], 0
        advance(block.height)
    if held:
        _write_parts(held, key, draft, count, part)


def _write_parts(held: list[pl.DataFrame], key: pl.Expr, draft: Path, count: int, part: int) -> None:
    frame = pl.concat(held).with_columns((key.hash(seed=0) % count).alias("__bucket"))
    for (bucket,), rows in frame.partition_by("__bucket", as_dict=True, include_key=False).items():
        rows.write_parquet(draft / f"part-{bucket:05d}-{part:06d}.parquet", compression="lz4")


def _finish(
    table: TableSource,
    columns: Columns,
    encoding: Encoding,
    draft: Path,
    count: int,
    invalid: Invalid,
    duplicates: Duplicates,
    advance: Callable[[float], None],
) -> tuple[list[str], list[Ledger]]:
    """Stage two: each bucket becomes a canonical file."""
    files, ledgers = [], []
    for bucket in range(count):
        parts = sorted(draft.glob(f"part-{bucket:05d}-*.parquet"))
        if not parts:
            continue
        frame = pl.concat([pl.read_parquet(part) for part in parts])
        numbers = frame[ROW].to_numpy()
        shard_table = replace(table, frame=frame.lazy(), in_memory=frame, row_numbers=numbers)
        logs = read_table(shard_table, columns, encoding, invalid=invalid, duplicates=duplicates)
        drops = tuple(
            drop if drop.example is None else replace(drop, example=int(numbers[drop.example]))
            for drop in logs.ledger.drops
        )
        logs = replace(logs, ledger=replace(logs.ledger, drops=drops))
        name = f"shard-{bucket:05d}.parquet"
        write_canonical(logs, draft / name)
        files.append(name)
        ledgers.append(logs.ledger)
        for part in parts:
            part.unlink()
        advance(frame.height)
    return files, ledgers
