"""Tables from anywhere: Parquet (file, glob, hive folder), CSV(.gz), polars, pandas, pyarrow."""

from __future__ import annotations

import csv
import glob as globbing
import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from shpi.errors import ColumnError, DataError
from shpi.protocols import Int64Array

BLOCK = 262_144  # rows of one block: large enough for vector speed, small beside the log


@dataclass(frozen=True, kw_only=True)
class TableSource:
    """A table that can be scanned more than once, in the order of its rows."""

    frame: pl.LazyFrame
    label: str
    files: tuple[Path, ...] = ()
    in_memory: pl.DataFrame | None = None
    row_numbers: Int64Array | None = None  # of a part of a table: the numbers of its rows in the whole

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
    if isinstance(source, str | Path):
        return _from_files(_list_files(source), str(source))
    if isinstance(source, list | tuple) and source and all(isinstance(item, str | Path) for item in source):
        return _from_files([file for item in source for file in _list_files(item)], f"{len(source)} paths")
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


def _from_frame(frame: pl.DataFrame, label: str) -> TableSource:
    if frame.height == 0:
        raise DataError(expected="at least one row", found="an empty table", where=label)
    return TableSource(frame=frame.lazy(), label=label, in_memory=frame)


def _list_files(source: str | Path) -> list[Path]:
    place = Path(source)
    if place.is_dir():
        files = sorted(place.rglob("*.parquet")) or sorted([*place.glob("*.csv"), *place.glob("*.csv.gz")])
        if not files:
            raise DataError(expected="Parquet or CSV files", found="a folder without any", where=str(place))
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


def _from_files(files: list[Path], label: str) -> TableSource:
    empty = [file for file in files if file.stat().st_size == 0]
    if empty:
        raise DataError(
            expected="a file with rows",
            found="an empty file (0 bytes)",
            where=str(empty[0]),
            remedy="write the file again, or leave it out of the glob",
        )
    csvs = [file for file in files if _is_csv(file)]
    if csvs and len(csvs) < len(files):
        raise DataError(expected="files of one format", found="CSV and Parquet together", where=label)
    if csvs:
        frame = pl.concat([_read_csv(file) for file in files], how="vertical_relaxed")
        if frame.height == 0:
            raise DataError(expected="at least one row", found="a header without rows", where=label)
        return TableSource(frame=frame.lazy(), label=label, files=tuple(files), in_memory=frame)
    return TableSource(frame=_scan_parquet(files, label), label=label, files=tuple(files))


def _is_csv(file: Path) -> bool:
    return file.name.lower().endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz"))


def _scan_file(file: Path) -> pl.LazyFrame:
    return _read_csv(file).lazy() if _is_csv(file) else pl.scan_parquet(file)


def _scan_parquet(files: list[Path], label: str) -> pl.LazyFrame:
    first: dict[str, pl.DataType] | None = None
    total = 0
    for file in files:
        try:
            schema = dict(pl.read_parquet_schema(file))
            total += pl.scan_parquet(file).select(pl.len()).collect().item()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise DataError(
                expected="a complete Parquet file",
                found=f"one that cannot be read ({_short(error)})",
                where=str(file),
                remedy="the file is truncated or of another format: write or copy it again",
            ) from None
        _same_types(first, schema, files[0], file)
        first = first or schema
    if total == 0:
        raise DataError(expected="at least one row", found="Parquet files without rows", where=label)
    hive = any("=" in part for file in files for part in file.parts)
    return pl.scan_parquet(files, hive_partitioning=hive)


def _same_types(
    first: dict[str, pl.DataType] | None, schema: dict[str, pl.DataType], first_file: Path, file: Path
) -> None:
    """All files must agree: a column in two time zones or two types is a mistake, not a detail."""
    for name, dtype in (first or {}).items():
        if name not in schema:
            raise ColumnError(
                expected=f"the column '{name}' of {first_file.name}", found="none", where=str(file)
            )
        if schema[name] != dtype:
            raise ColumnError(
                expected=f"column '{name}' as {dtype} (as in {first_file.name})",
                found=str(schema[name]),
                where=str(file),
                remedy="write the files with one type and one time zone per column",
            )


def _read_csv(file: Path) -> pl.DataFrame:
    separator = "\t" if ".tsv" in file.name.lower() else ","
    try:
        raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        text = raw.decode("utf-8-sig")
    except (OSError, EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise DataError(
            expected="a complete UTF-8 CSV file",
            found=f"one that cannot be read ({_short(error)})",
            where=str(file),
            remedy="the file is truncated or in another encoding: write or copy it again",
        ) from None
    _check_csv_lines(text, separator, file)
    try:
        return pl.read_csv(
            io.BytesIO(raw), separator=separator, infer_schema_length=None, try_parse_dates=False
        )
    except pl.exceptions.PolarsError as error:
        raise DataError(expected="a readable CSV file", found=_short(error), where=str(file)) from None


def _check_csv_lines(text: str, separator: str, file: Path) -> None:
    """Every line must have as many fields as the header: a short line would become silent nulls."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    header = next(reader, [])
    if not any(header):
        raise DataError(expected="a CSV header", found="an empty line", where=str(file))
    for record in reader:
        if len(record) != len(header) and record:
            raise DataError(
                expected=f"{len(header)} fields, as in the header",
                found=f"{len(record)} fields",
                where=f"line {reader.line_num} of {file}",
                remedy="repair or delete the line",
            )


def _short(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:160] if str(error).strip() else type(error).__name__
