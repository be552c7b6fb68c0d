"""Times of any kind as int64 microseconds since 1970 UTC, or as plain step numbers."""

from __future__ import annotations

import polars as pl

from shpi.data.columns import TimeColumnUnit
from shpi.data.durations import MICROSECONDS
from shpi.errors import ColumnError, DataError

YEAR_9999 = 253_402_300_800_000_000  # microseconds since 1970
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
            return (time if dtype.is_float() else time.cast(pl.Int64, strict=False)), False
        if unit == "ns":
            return (time.cast(pl.Int64, strict=False) // 1_000), True
        if dtype.is_float():
            return (time * MICROSECONDS[unit]).round().cast(pl.Int64, strict=False), True
        return time.cast(pl.Int64, strict=False) * MICROSECONDS[unit], True
    raise ColumnError(
        expected="a time column of dates, timestamps, ISO text or numbers",
        found=str(dtype),
        where=f"column '{column}'",
    )


def check_number_times(
    frame: pl.LazyFrame, column: str, dtype: pl.DataType, unit: TimeColumnUnit, where: str
) -> None:
    """Raise on numbers too large for times in this unit: they would overflow and change the order."""
    time, per_unit = pl.col(column), 1.0
    if isinstance(dtype, pl.Datetime):
        time, per_unit = time.to_physical(), {"ns": 1e-3, "us": 1.0, "ms": 1e3}[dtype.time_unit]
    elif not dtype.is_numeric() or unit in ("auto", "step"):
        return
    else:
        per_unit = 1e-3 if unit == "ns" else float(MICROSECONDS[unit])
    size = time.cast(pl.Float64).abs() * per_unit
    facts = frame.select(largest=size.max(), row=size.arg_max()).collect().row(0, named=True)
    if facts["largest"] is None or not facts["largest"] > YEAR_9999:
        return
    value = frame.select(pl.col(column).slice(facts["row"], 1)).collect().item()
    fits = units_that_fit(value)
    hint = f"; time_unit = '{fits[0]}' would fit" if fits else ""
    raise DataError(
        expected=f"times before the year 9999 in the unit '{unit}'",
        found=str(value),
        where=f"column '{column}', row {facts['row']} of {where}",
        remedy=f"say what the numbers count with time_unit{hint}",
    )


def units_that_fit(value: object) -> list[str]:
    """The units in which a number is a time before the year 9999, the longest first."""
    if not isinstance(value, int | float):
        return []
    microseconds = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
    return [unit for unit, size in microseconds.items() if abs(value) * size < YEAR_9999]


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
