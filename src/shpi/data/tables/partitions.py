"""Hive folders: ``events/day=2026-11-15/part.parquet`` has a column ``day``, if it lies below the given root.

A folder above the root says nothing about its files, and a folder never replaces a column of the file.
"""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from urllib.parse import unquote

import polars as pl

from shpi.errors import ColumnError

_MISSING = "__HIVE_DEFAULT_PARTITION__"


def root_of(source: str | Path) -> Path:
    """The place above the partitions: the source itself, or the part of a glob before its wildcards."""
    place = Path(source)
    if place.exists():
        return place
    plain = []
    for folder in place.parts:
        if any(sign in folder for sign in "*?["):
            break
        plain.append(folder)
    return Path(*plain)


def scan_partitions(files: list[Path], roots: list[Path], columns: list[str]) -> pl.LazyFrame:
    """All files as one table, with the columns of their folders.

    Args:
        files: Parquet files of one schema.
        roots: the places that were asked for; only folders below them are partitions.
        columns: columns of the files.
    """
    partitions: list[dict[str, str | None]] = []  # the values in the names of the folders below a root
    for file in files:
        below = [file.relative_to(root).parts[:-1] for root in roots if file.is_relative_to(root)]
        folders = max(below, key=len, default=())
        pairs = (folder.split("=", 1) for folder in folders if re.fullmatch(r"[^=]+=.*", folder))
        partitions.append({name: None if value == _MISSING else unquote(value) for name, value in pairs})
    if not any(partitions):
        return pl.scan_parquet(files, hive_partitioning=False)
    for file, values in zip(files, partitions, strict=True):
        if list(values) != list(partitions[0]):
            raise ColumnError(
                expected=f"the partition folders {', '.join(partitions[0]) or 'of the first file, none'}",
                found=", ".join(values) or "none",
                where=str(file),
                remedy="read the parts of the folder that are partitioned alike",
            )
        clash = [name for name in values if name in columns]
        if clash:
            raise ColumnError(
                expected="partition folders whose names are no columns of the files",
                found=f"the folder '{clash[0]}={values[clash[0]]}' and a column '{clash[0]}'",
                where=str(file),
                remedy="rename the folder or drop the column: which of the two is right cannot be known",
            )
    types = {name: _type([values[name] for values in partitions]) for name in partitions[0]}
    return pl.concat(
        [
            pl.scan_parquet(file, hive_partitioning=False).with_columns(
                pl.lit(_parsed(value, types[name]), dtype=types[name]).alias(name)
                for name, value in values.items()
            )
            for file, values in zip(files, partitions, strict=True)
        ]
    )


def _parsed(value: str | None, dtype: type[pl.DataType]) -> str | int | date | None:
    if value is None or dtype == pl.String:
        return value
    return int(value) if dtype == pl.Int64 else date.fromisoformat(value)


def _type(values: list[str | None]) -> type[pl.DataType]:
    known = [value for value in values if value is not None]
    if known and all(re.fullmatch(r"-?\d{1,18}", value) for value in known):
        return pl.Int64
    if known and all(_is_date(value) for value in known):
        return pl.Date
    return pl.String


def _is_date(value: str) -> bool:
    try:
        return len(value) == 10 and bool(date.fromisoformat(value))
    except ValueError:
        return False
