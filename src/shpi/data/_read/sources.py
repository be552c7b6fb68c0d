"""Tables from anywhere: Parquet (file, glob, hive folder), CSV, JSON lines (.gz), polars, pandas, pyarrow."""

from __future__ import annotations

import glob as globbing
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from shpi.data._log.ledger import Drop
from shpi.data.tables.delimited import read_delimited
from shpi.data.tables.formats import TEXT_PATTERNS, format_of
from shpi.data.tables.json_lines import read_json_lines
from shpi.data.tables.partitions import root_of, scan_partitions
from shpi.errors import ColumnError, DataError, MemoryLimitError
from shpi.files.engines import translated
from shpi.files.remote import fetch_tables, is_remote
from shpi.protocols import Int64Array

BLOCK = 262_144  # rows per block: large enough for vectorised speed, small beside the log


@dataclass(frozen=True, kw_only=True)
class TableSource:
    """A table that can be scanned more than once, in the order of its rows."""

    frame: pl.LazyFrame
    label: str
    files: tuple[Path, ...] = ()
    in_memory: pl.DataFrame | None = None
    row_numbers: Int64Array | None = None  # of a part of a table: its row numbers in the whole table
    drops: tuple[Drop, ...] = ()  # lines of the files that are not rows of the table
    notes: tuple[str, ...] = ()  # what was inferred about the files
    copies: Any = None  # temporary folder with copies of remote files, deleted with the table
    known_until: int | float | None = None  # outcomes of later decisions are not known yet

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self.frame.collect_schema().names()

    def blocks(self, expressions: list[pl.Expr]) -> Iterator[pl.DataFrame]:
        """The chosen columns, a block of rows at a time, in the order of the source."""
        chosen = self.frame.select(expressions)
        if self.in_memory is not None:
            yield from chosen.collect().iter_slices(BLOCK)
        else:
            yield from chosen.collect_batches(chunk_size=BLOCK, maintain_order=True)

    def locate(self, row: int) -> str:
        """Say where a row is: its number from 0, and the file when there are several."""
        if self.row_numbers is not None:
            row = int(self.row_numbers[row])
        if len(self.files) > 1:
            before = 0
            for file in self.files:
                height = _scan_file(file).select(pl.len()).collect().item()
                if row < before + height:
                    return f"row {row - before} of {file}"
                before += height
        return f"row {row}" + (f" of {self.label}" if self.files else "")


def open_table(source: Any) -> TableSource:
    """Open a path, glob, folder, list of paths, or a polars, pandas or pyarrow table."""
    if isinstance(source, pl.LazyFrame):
        source = source.collect()
    if isinstance(source, pl.DataFrame):
        return _from_frame(source, "the polars table")
    if is_remote(source):
        return _fetched([source], source)
    if isinstance(source, list | tuple) and source and all(is_remote(item) for item in source):
        return _fetched(list(source), f"{len(source)} addresses")
    if isinstance(source, str | Path):
        return _from_files(_list_files(source), str(source), [root_of(source)])
    if isinstance(source, list | tuple) and source and all(isinstance(item, str | Path) for item in source):
        files = [file for item in source for file in _list_files(item)]
        return _from_files(files, f"{len(source)} paths", [root_of(item) for item in source])
    module = type(source).__module__.split(".")[0]
    if module == "pandas":
        return _from_frame(pl.from_pandas(source, nan_to_null=False), "the pandas table")
    if module == "pyarrow" or hasattr(source, "__arrow_c_stream__"):
        frame = pl.from_arrow(source)
        if isinstance(frame, pl.DataFrame):
            return _from_frame(frame, "the Arrow table")
    raise DataError(
        expected="a path, a glob, a folder, or a polars, pandas or pyarrow table",
        found=f"{type(source).__module__}.{type(source).__name__}",
    )


def _fetched(uris: list[str], label: str) -> TableSource:
    """Open tables at URIs. Local copies live as long as the table, because it is read several times."""
    folder = tempfile.TemporaryDirectory(prefix="shpi-table-")
    places = []
    for number, uri in enumerate(uris):
        home = Path(folder.name) / f"{number:05d}"
        home.mkdir()
        try:
            places.append(fetch_tables(uri, home))
        except FileNotFoundError:
            raise DataError(expected="files", found="nothing that matches", where=uri) from None
    files = [file for place in places for file in _list_files(place)]
    table = _from_files(files, label, [root_of(place) for place in places])
    return replace(table, copies=folder)


def _from_frame(frame: pl.DataFrame, label: str) -> TableSource:
    if frame.height == 0:
        raise DataError(expected="at least one row", found="an empty table", where=label)
    return TableSource(frame=frame.lazy(), label=label, in_memory=frame)


def _list_files(source: str | Path) -> list[Path]:
    place = Path(source)
    if place.is_dir():
        texts = {file for pattern in TEXT_PATTERNS for file in place.glob(pattern)}
        files = sorted(place.rglob("*.parquet")) or sorted(texts)
        if not files:
            raise DataError(
                expected="Parquet, CSV or JSON files", found="a folder without any", where=str(place)
            )
        return files
    if place.exists():
        return [place]
    files = sorted(Path(name) for name in globbing.glob(str(source), recursive=True))  # noqa: PTH207
    files = [file for file in files if file.is_file()]
    if not files:
        raise DataError(
            expected="an existing file, folder or glob", found="nothing that matches", where=str(source)
        )
    return files


def _from_files(files: list[Path], label: str, roots: list[Path]) -> TableSource:
    empty = [file for file in files if file.stat().st_size == 0]
    if empty:
        raise DataError(
            expected="a file with rows",
            found="an empty file (0 bytes)",
            where=str(empty[0]),
            remedy="write the file again, or leave it out of the glob",
        )
    formats = {format_of(file) for file in files}
    if len(formats) > 1:
        raise DataError(
            expected="files of one format", found=" and ".join(sorted(formats)) + " together", where=label
        )
    if formats == {"parquet"}:
        return TableSource(frame=_scan_parquet(files, label, roots), label=label, files=tuple(files))
    tables = [_read_text(file) for file in files]
    frame = pl.concat([table for table, _, _ in tables], how="vertical_relaxed")
    if frame.height == 0:
        raise DataError(expected="at least one row", found="a header without rows", where=label)
    return TableSource(
        frame=frame.lazy(),
        label=label,
        files=tuple(files),
        in_memory=frame,
        drops=tuple(drop for _, drops, _ in tables for drop in drops),
        notes=tuple(note for _, _, notes in tables for note in notes),
    )


def _read_text(file: Path) -> tuple[pl.DataFrame, tuple[Drop, ...], tuple[str, ...]]:
    if format_of(file) == "csv":
        frame, notes = read_delimited(file)
        return frame, (), notes
    frame, drops = read_json_lines(file)
    return frame, drops, ()


def _scan_file(file: Path) -> pl.LazyFrame:
    return pl.scan_parquet(file) if format_of(file) == "parquet" else _read_text(file)[0].lazy()


def _scan_parquet(files: list[Path], label: str, roots: list[Path]) -> pl.LazyFrame:
    first: dict[str, pl.DataType] | None = None
    total = 0
    for file in files:
        try:
            schema = dict(pl.read_parquet_schema(file))
            total += pl.scan_parquet(file).select(pl.len()).collect().item()
        except (pl.exceptions.PolarsError, OSError) as error:
            no_memory = translated(error, str(file))
            if isinstance(no_memory, MemoryLimitError):
                raise no_memory from None
            raise DataError(
                expected="a complete Parquet file",
                found=f"one that cannot be read ({_short(error)})",
                where=str(file),
                remedy="the file is truncated or of another format: write or copy it again; text files are "
                "known by their names, such as log.csv or log.jsonl",
            ) from None
        first = first or schema
        for name, dtype in first.items():  # a second type or time zone is an error
            if name not in schema:
                raise ColumnError(
                    expected=f"the column '{name}' of {files[0].name}", found="none", where=str(file)
                )
            if schema[name] != dtype:
                raise ColumnError(
                    expected=f"column '{name}' as {dtype} (as in {files[0].name})",
                    found=str(schema[name]),
                    where=str(file),
                    remedy="write the files with one type and one time zone per column",
                )
    if total == 0:
        raise DataError(expected="at least one row", found="Parquet files without rows", where=label)
    return scan_partitions(files, roots, list(first or {}))


def _short(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:160] if str(error).strip() else type(error).__name__
