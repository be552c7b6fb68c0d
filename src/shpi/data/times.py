"""Times of any kind as int64 microseconds since 1970 UTC, or as plain step numbers."""

from __future__ import annotations

import polars as pl

from shpi.data.columns import TimeColumnUnit
from shpi.errors import ColumnError, DataError

MICROSECONDS = {"d": 86_400_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
_OFFSET = r"(?:[zZ]|[+-]\d{2}:?\d{2})$"
_FORMATS = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d", "%Y%m%d")


def time_expression(column: str, dtype: pl.DataType, unit: TimeColumnUnit) -> tuple[pl.Expr, bool]:
    """An expression for the time column, and whether it is in microseconds (else plain numbers)."""
    time = pl.col(column)
    if dtype == pl.Date:
        return time.cast(pl.Datetime("us")).to_physical(), True
    if isinstance(dtype, pl.Datetime):
        return time.dt.cast_time_unit("us").to_physical(), True  # aware or not: stored as UTC instants
    if dtype == pl.String:
        return _parsed(column).to_physical(), True
    if dtype.is_numeric():
        if unit in ("auto", "step"):
            return (time if dtype.is_float() else time.cast(pl.Int64)), False
        if unit == "ns":
            return (time.cast(pl.Int64) // 1_000), True
        if dtype.is_float():
            return (time * MICROSECONDS[unit]).round().cast(pl.Int64), True
        return time.cast(pl.Int64) * MICROSECONDS[unit], True
    raise ColumnError(
        expected="a time column of dates, timestamps, ISO text or numbers",
        found=str(dtype),
        where=f"column '{column}'",
    )


def _parsed(column: str) -> pl.Expr:
    """ISO text to UTC instants, whatever the offset of each value; null where it cannot be read."""
    text = pl.col(column).str.strip_chars().str.replace("T", " ", literal=True)
    offset = text.str.extract(f"({_OFFSET})").str.to_uppercase().str.replace("Z", "+00:00", literal=True)
    digits = offset.str.replace(":", "", literal=True)
    minutes = digits.str.slice(1, 2).cast(pl.Int64) * 60 + digits.str.slice(3, 2).cast(pl.Int64)
    shift = pl.when(digits.str.starts_with("-")).then(-minutes).otherwise(minutes).fill_null(0)
    naive = text.str.replace(_OFFSET, "").str.strip_chars()
    parsed = pl.coalesce(
        [naive.str.strptime(pl.Datetime("us"), form, strict=False, exact=True) for form in _FORMATS]
    )
    return parsed - pl.duration(minutes=shift)


def check_text_times(frame: pl.LazyFrame, column: str, where: str) -> list[str]:
    """Refuse unreadable times and a mixture of times with and without a zone; note mixed offsets."""
    text = pl.col(column).str.strip_chars()
    offset = text.str.extract(f"({_OFFSET})").str.to_uppercase().str.replace("Z", "+00:00", literal=True)
    has_zone = text.str.contains(r"\d[ T]\d") & offset.is_not_null()
    facts = frame.select(
        bad=_parsed(column).is_null().arg_max(),
        n_bad=_parsed(column).is_null().sum(),
        aware=has_zone.sum(),
        rows=pl.len(),
        offsets=offset.filter(has_zone).unique().sort().implode(),
        odd=(has_zone != has_zone.first()).arg_max(),
    ).collect()
    row = facts.row(0, named=True)
    if row["n_bad"]:
        value = frame.select(pl.col(column).slice(row["bad"], 1)).collect().item()
        raise DataError(
            expected="times such as 2026-11-15 09:30:00 or 2026-11-15T09:30:00+01:00",
            found=repr(value),
            where=f"column '{column}', row {row['bad']} of {where}",
            remedy="write ISO 8601 times, or give numbers and a time_unit",
        )
    if 0 < row["aware"] < row["rows"]:
        raise DataError(
            expected="every time with a zone, or none",
            found=f"{row['aware']} times with a zone and {row['rows'] - row['aware']} without",
            where=f"column '{column}', row {row['odd']} of {where}",
            remedy="write all times in UTC",
        )
    if len(row["offsets"]) > 1:
        return [f"times in {len(row['offsets'])} zones ({', '.join(row['offsets'])}) were converted to UTC"]
    return []
