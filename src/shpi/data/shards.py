"""Logs larger than memory: prepared once into shards of whole users, then passed over shard by shard.

Stage one streams the table and deals its rows into buckets by a hash of the user. Stage two reads one bucket
after the other, sorts and checks it, and writes it as a canonical file. Memory is bounded by a block and by
the largest bucket, whatever the number of rows. A pass is *map over shards, then reduce*, so sums over shards
are the sums over the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from shpi._core.progress import progress_bar
from shpi.data._log.ledger import Ledger
from shpi.data._read.encoding import Encoding, learn_encoding
from shpi.data._read.read import Duplicates, Invalid, asked, known_part, read_table, with_counted_column
from shpi.data._read.sources import TableSource, open_table
from shpi.data.canonical import read_canonical, read_header, write_canonical
from shpi.data.columns import Columns, expand
from shpi.data.logged import LoggedData
from shpi.data.question import Metric
from shpi.data.question.count import observe
from shpi.data.tables.join import join_events
from shpi.errors import ConfigError, DataError
from shpi.files.atomic import new_folder, write_text
from shpi.files.bundle import checksum, to_json
from shpi.files.described import LEDGER
from shpi.files.reading import read_json
from shpi.files.schema import Record, check, whole
from shpi.files.seal import read_seal

T = TypeVar("T")

MANIFEST = "manifest.json"
VERSION = 2  # of the manifest
_FIRST = {"version": int, "files": [str], "ledger": LEDGER, "rows": whole()}
_SCHEMAS = {1: Record(_FIRST), 2: Record({**_FIRST, "checksums": [str], "checksum": str})}
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
            folder=place, files=_checked_files(manifest, place), ledger=Ledger.from_json(manifest["ledger"])
        )

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[LoggedData]:
        return (read_canonical(file) for file in self.files)

    def map(self, function: Callable[[LoggedData], T], *, jobs: int = 1) -> list[T]:
        """The function's result for every shard, in order; with ``jobs`` > 1 in processes.

        Processes are spawned, not forked: a fork of a parent that has used polars hangs on its locks. The
        function must therefore be importable.
        """
        if jobs <= 1:
            return [function(shard) for shard in self]
        with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn")) as pool:
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
    table, chosen = join_events(open_table(source), chosen)
    chosen = with_counted_column(chosen, None, table.columns)
    encoding = learn_encoding(table, chosen, action_features=action_features)
    rows = table.frame.select(pl.len()).collect().item()
    count = shards if shards is not None else max(1, -(-rows // ROWS_PER_SHARD))
    if count < 1:
        raise ConfigError(expected="at least one shard", found=str(shards))
    with new_folder(place) as draft:
        with progress_bar(f"preparing {count} shards", 2 * rows, progress) as advance:
            _deal(table, chosen, encoding, draft, count, advance)
            files, ledgers = _finish(table, chosen, encoding, draft, count, invalid, duplicates, advance)
        ledgers = _settle(table, chosen, [draft / name for name in files]) or ledgers
        _write_manifest(draft, files, ledgers)
    return ShardedLog.open(place)


def write_shards(parts: Iterable[LoggedData], folder: str | Path) -> ShardedLog:
    """Write logs that are in memory, no user in two of them, as the shards of a new folder."""
    files, ledgers = [], []
    with new_folder(folder) as draft:
        for number, logs in enumerate(parts):
            files.append(f"shard-{number:05d}.parquet")
            known = logs.ledger.rows_used == len(logs)  # a part of a log carries the ledger of the whole
            ledgers.append(logs.ledger if known else Ledger(rows_in=len(logs), rows_used=len(logs)))
            write_canonical(replace(logs, ledger=ledgers[-1]), draft / files[-1])
        _write_manifest(draft, files, ledgers)
    return ShardedLog.open(folder)


def _settle(table: TableSource, columns: Columns, files: list[Path]) -> list[Ledger]:
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
    ledgers = []
    for file in files:
        logs = known_part(read_canonical(file), table)
        logs = asked(logs, metric, columns.churn_after, end, observed)
        write_canonical(logs, file)
        ledgers.append(logs.ledger)
    return ledgers


def _write_manifest(draft: Path, files: list[str], ledgers: list[Ledger]) -> None:
    ledger = Ledger.sum(ledgers)
    manifest = {
        "version": VERSION,
        "files": files,
        "checksums": [read_seal(draft / name) for name in files],
        "ledger": ledger.to_json(),
        "rows": ledger.rows_used,
    }
    write_text(draft / MANIFEST, to_json(manifest | {"checksum": checksum(manifest)}))


def _checked_files(manifest: Any, place: Path) -> tuple[Path, ...]:
    """The shards of a manifest: all of them, each once, in their order, nothing from elsewhere."""
    version = manifest.get("version") if isinstance(manifest, dict) else None
    if type(version) is not int or version not in _SCHEMAS:
        raise DataError(
            expected=f"version {' or '.join(map(str, _SCHEMAS))} of a folder of shards",
            found=f"version {version!r}"[:80],
            where=str(place / MANIFEST),
            remedy="prepare the shards again with prepare_shards, or upgrade shpi",
        )
    check(manifest, _SCHEMAS[version], str(place / MANIFEST))
    names = manifest["files"]
    odd = [name for name in names if not re.fullmatch(r"shard-[0-9]{5,}\.parquet", name)]
    if odd or names != sorted(set(names)):
        raise _not_whole(f"{odd[0]!r}"[:80] if odd else "a shard twice or out of order", place)
    if version > 1 and manifest["checksum"] != checksum(manifest):
        raise _not_whole("a manifest that was changed", place)
    absent = [name for name in names if not (place / name).is_file()]
    if absent:
        raise _not_whole(f"{absent[0]} missing", place)
    headers = [read_header(place / name, verify=False) for name in names]
    rows = sum(header["ledger"]["rows_used"] for header in headers)
    if rows != manifest["rows"] or rows != manifest["ledger"]["rows_used"]:
        raise _not_whole(f"{rows:,} rows in the shards and {manifest['rows']:,} in the manifest", place)
    if any(header[key] != headers[0][key] for header in headers for key in ("schema", "actions")):
        raise _not_whole("shards of different logs", place)
    if version > 1 and [read_seal(place / name) for name in names] != manifest["checksums"]:
        raise _not_whole("a shard that was changed or replaced", place)
    return tuple(place / name for name in names)


def _not_whole(found: str, place: Path) -> DataError:
    return DataError(
        expected="every shard of the manifest, once and in order",
        found=found,
        where=str(place),
        remedy="copy the folder again, or prepare the shards again with prepare_shards",
    )


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


def _write_parts(held: list[pl.DataFrame], key: pl.Expr, draft: Path, count: int, number: int) -> None:
    frame = pl.concat(held).with_columns((key.hash(seed=0) % count).alias("__bucket"))
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
) -> tuple[list[str], list[Ledger]]:
    """Stage two: each bucket becomes a canonical file."""
    files: list[str] = []
    ledgers: list[Ledger] = []
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
        ledgers.append(logs.ledger)
        for file in parts:
            file.unlink()
        advance(frame.height)
    return files, ledgers
