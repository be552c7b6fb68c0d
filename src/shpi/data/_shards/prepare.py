"""Turn a table into shards in two stages, each of which may be interrupted.

Stage one streams the table and distributes its rows among buckets by a hash of the user. Stage two reads one
bucket at a time, sorts and checks it, and writes it as a canonical file. Memory is bounded by a block and by
the largest bucket, whatever the number of rows.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import polars as pl

from shpi._core.versions import versions
from shpi.data._read.assemble import Duplicates
from shpi.data._read.encoding import Encoding
from shpi.data._read.read import Invalid, apply_metric, known_part, read_table
from shpi.data._read.sources import BLOCK, TableSource
from shpi.data._shards.buckets import Buckets, by_bucket
from shpi.data._shards.manifest import ShardCounts, file_digest
from shpi.data.canonical import read_canonical, write_canonical
from shpi.data.columns import Columns, expand
from shpi.data.question import Metric
from shpi.data.question.count import observe
from shpi.errors import ConfigError
from shpi.files.atomic import locked, write_text, writing
from shpi.files.engines import engine_errors

ROWS_PER_PART = 1_000_000  # rows held in memory before they are written to buckets
CELLS_PER_PART = 100_000_000  # limit on the cells (rows × columns) held, for wide tables
PART = "part-{:05d}.arrow"  # the rows of a bucket, in the order of the source
ROW = "__shpi_row"  # the row number in the source, kept for error messages
DEALT = "dealt.txt"  # marks a work folder whose rows are all in buckets; holds the digest of the work


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """A table, and the settings for turning it into shards.

    Args:
        table: the table.
        columns: which column means what.
        encoding: the encoding learned from the whole table.
        count: number of buckets.
        invalid: what happens to rows with unusable values.
        duplicates: what happens to decisions that repeat an earlier one.
    """

    table: TableSource
    columns: Columns
    encoding: Encoding
    count: int
    invalid: Invalid
    duplicates: Duplicates

    def write(
        self, draft: Path, resume: Path | None, advance: Callable[[float], None], rows: int
    ) -> tuple[list[str], list[ShardCounts]]:
        """Write the shards into ``draft``; return their file names and counts.

        Args:
            draft: the folder to write into.
            resume: a folder for unfinished work, from which an interrupted run continues; it is removed at
                the end.
            advance: moves the progress bar by a number of rows.
            rows: number of rows of the table.
        """
        with nullcontext(draft) if resume is None else _work_folder(resume, self._key()) as work:
            if (work / DEALT).exists():
                advance(rows)
            else:
                self._deal(work, advance, rows)
            if resume is not None:
                write_text(work / DEALT, self._key())
            files, counts = self._finish(work, advance)
            counts = self._settle(work, draft, files) or counts
            for name in files:
                if not (draft / name).exists():
                    _link(work / name, draft / name)
        return files, counts

    def _deal(self, work: Path, advance: Callable[[float], None], rows: int) -> None:
        """Stage one: write the rows into buckets, in the order of the source."""
        names = [pl.col(name) for name in self._needed()]
        key = self.columns.user if self.columns.user is not None else ROW
        buckets = Buckets(self.count, rows)
        start, held, height = 0, [], 0
        most = min(ROWS_PER_PART, max(BLOCK, CELLS_PER_PART // len(names)))
        for block in self.table.blocks(names):
            numbered = block.with_row_index(ROW, offset=start).with_columns(pl.col(ROW).cast(pl.Int64))
            held.append(numbered)
            start, height = start + block.height, height + block.height
            if height >= most:
                _write_parts(held, key, work, buckets)
                held, height = [], 0
            advance(block.height)
        if held:
            _write_parts(held, key, work, buckets)

    def _finish(self, work: Path, advance: Callable[[float], None]) -> tuple[list[str], list[ShardCounts]]:
        """Stage two: turn each bucket into a canonical file."""
        files: list[str] = []
        counts: list[ShardCounts] = []
        for bucket in range(self.count):
            name = f"shard-{bucket:05d}.parquet"
            part = work / PART.format(bucket)
            if (work / name).exists():  # done before an interruption
                counts.append(ShardCounts.of(read_canonical(work / name)))
                advance(counts[-1].ledger.rows_in)
            elif part.exists():
                counts.append(self._shard(part, work / name, first=not files))
                advance(counts[-1].ledger.rows_in)
            else:
                continue
            files.append(name)
            part.unlink(missing_ok=True)
        return files, counts

    def _shard(self, part: Path, target: Path, *, first: bool) -> ShardCounts:
        """Write one bucket as a canonical file."""
        frame = pl.concat(_frames(part))
        numbers = frame[ROW].to_numpy()
        # The drops and notes of the whole table are recorded once, with the first shard.
        once = self.table if first else replace(self.table, drops=(), notes=())
        table = replace(once, frame=frame.lazy(), in_memory=frame, row_numbers=numbers)
        logs = read_table(
            table, self.columns, self.encoding, invalid=self.invalid, duplicates=self.duplicates
        )
        drops = tuple(
            drop if drop.example is None else replace(drop, example=int(numbers[drop.example]))
            for drop in logs.ledger.drops
        )
        logs = replace(logs, ledger=replace(logs.ledger, drops=drops))
        write_canonical(logs, target)
        return ShardCounts.of(logs)

    def _settle(self, work: Path, draft: Path, names: list[str]) -> list[ShardCounts]:
        """Apply the metric and ``churn_after`` to every shard, using facts about the whole log."""
        table, columns = self.table, self.columns
        if columns.metric is None and columns.churn_after is None and table.known_until is None:
            return []
        metric = None if columns.metric is None else Metric.of(columns.metric)
        end = table.known_until
        if end is None:
            end = max(read_canonical(work / name).times.max() for name in names)
        observed = None
        if metric is not None and metric.window is not None:
            logs_of_shards = (known_part(read_canonical(work / name), table) for name in names)
            observed = observe(logs_of_shards, metric, end)
        counts = []
        for name in names:
            logs = known_part(read_canonical(work / name), table)
            logs = apply_metric(logs, metric, columns.churn_after, end, observed)
            write_canonical(logs, draft / name)
            counts.append(ShardCounts.of(logs))
        return counts

    def _needed(self) -> list[str]:
        """The columns of the table that the shards need."""
        columns, encoding, known = self.columns, self.encoding, self.table.columns
        names = dict.fromkeys(columns.single().values())
        names |= dict.fromkeys(feature.name for feature in encoding.schema.features)
        names |= dict.fromkeys(expand("metrics", columns.metrics, known, set()))
        names |= dict.fromkeys([*columns.identity, *encoding.candidate_columns, *encoding.behaviour_columns])
        listed = [name for name in (columns.candidates, columns.behaviour) if name in known]
        return list(names | dict.fromkeys(str(name) for name in listed))

    def _key(self) -> str:
        """A digest of the settings and of the source files."""
        if not self.table.files:
            raise ConfigError(
                expected="files as a source, where the work is to go on after an interruption",
                found=self.table.label,
                where="resume",
            )
        files: list[tuple[str | int, ...]]
        if self.table.copies is None:
            files = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in self.table.files]
        else:  # fresh copies of remote files: compare their contents, not their times
            files = [(file.name, file.stat().st_size, file_digest(file)) for file in self.table.files]
        settings = (self.columns, self.count, self.invalid, self.duplicates, self.encoding.schema.to_json())
        return blake2b(repr((files, settings, versions())).encode(), digest_size=16).hexdigest()


def _write_parts(held: list[pl.DataFrame], key: str, work: Path, buckets: Buckets) -> None:
    frame = pl.concat(held, rechunk=True)  # picking rows from a single chunk is several times faster
    for bucket, rows in by_bucket(frame, buckets.of(frame[key]), buckets.count):
        _append(rows, work / PART.format(bucket))


def _append(rows: pl.DataFrame, part: Path) -> None:
    """Append rows to a bucket: their length in bytes, then the rows in Arrow's format.

    A Parquet file for each would take milliseconds, and their number grows with the square of the log.
    """
    content = io.BytesIO()
    rows.write_ipc_stream(content, compression="lz4")
    with writing(part), part.open("ab") as file:
        file.write(content.tell().to_bytes(8, "little"))
        file.write(content.getbuffer())


def _frames(part: Path) -> list[pl.DataFrame]:
    """All frames that were appended to a bucket, in order."""
    frames = []
    with part.open("rb") as file, engine_errors(str(part)):
        while size := file.read(8):
            frames.append(pl.read_ipc_stream(io.BytesIO(file.read(int.from_bytes(size, "little")))))
    return frames


@contextmanager
def _work_folder(folder: Path, key: str) -> Iterator[Path]:
    """Create the folder of unfinished work, or check that it belongs to the same work; lock it meanwhile."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        marker = folder / DEALT
        if not marker.exists():
            _require_unused(folder)
            for part in folder.glob("part-*"):  # left by an interrupted stage one, which starts again
                part.unlink()
        elif marker.read_text(encoding="utf-8") != key:
            raise ConfigError(
                expected="the unfinished work of this very command",
                found="that of another source, column map, number of rows, or version",
                where=str(folder),
                remedy="give another folder, or remove this one",
            )
        yield folder


def _require_unused(folder: Path) -> None:
    other = [path.name for path in folder.iterdir() if not path.name.startswith(("part-", "."))]
    if other:
        raise ConfigError(
            expected="an empty folder, or one of unfinished work",
            found=f"'{other[0]}' in it",
            where=str(folder),
            remedy="give another folder",
        )


def remove_work(resume: Path | None) -> None:
    """Remove the folder of unfinished work once everything is written."""
    if resume is not None:
        shutil.rmtree(resume, ignore_errors=True)


def _link(source: Path, target: Path) -> None:
    """Hard-link a file into another folder, or copy it where links are not possible."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
