"""CSV in any dialect: the delimiter, the encoding and decimal commas are detected."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import polars as pl

from shpi.data.tables.formats import text_of
from shpi.errors import DataError

DELIMITERS = (",", ";", "\t", "|")
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
_LOOK = 200  # records to inspect for decimal commas


def read_delimited(file: Path) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The table in a CSV file, and notes on what was detected."""
    text, encoding = text_of(file, "CSV")
    separator = delimiter_of(text, file)
    notes = (f"{file.name} is not UTF-8: it was read as Windows-1252",) if encoding == "cp1252" else ()
    _check_lines(text, separator, file)
    decimal_comma = _decimal_commas(text, separator)
    try:
        frame = pl.read_csv(
            io.BytesIO(text.encode("utf-8")),
            separator=separator,
            infer_schema_length=None,
            try_parse_dates=False,
            decimal_comma=decimal_comma,
        )
    except pl.exceptions.PolarsError as error:
        short = str(error).strip().splitlines()[0][:160]
        raise DataError(expected="a readable CSV file", found=short, where=str(file)) from None
    return _blanks_as_missing(frame, decimal_comma=decimal_comma), notes


def _blanks_as_missing(frame: pl.DataFrame, *, decimal_comma: bool) -> pl.DataFrame:
    """Read numbers with quoted blanks among them ("") as numbers, some missing; polars reads them as text."""
    numbers = []
    for column in frame.select(pl.col(pl.String)).iter_columns():
        filled = column.str.strip_chars().replace("", None)
        if filled.null_count() in (column.null_count(), len(column)):  # no blanks, or nothing else
            continue
        plain = filled.str.replace(",", ".", literal=True) if decimal_comma else filled
        values = plain.cast(pl.Float64, strict=False)
        if values.null_count() == filled.null_count():
            numbers.append(values)
    return frame.with_columns(numbers)


def delimiter_of(text: str, file: Path) -> str:
    """The delimiter that splits the header most often; a comma if none does."""
    header = text.split("\n", 1)[0].rstrip("\r")
    counts = {sign: len(next(csv.reader([header], delimiter=sign), [])) for sign in DELIMITERS}
    best = max(DELIMITERS, key=lambda sign: counts[sign])
    if counts[best] > 1:
        return best
    return "\t" if ".tsv" in file.name.lower() else ","


def _decimal_commas(text: str, separator: str) -> bool:
    if separator == ",":
        return False
    start = "\n".join(text.split("\n", _LOOK + 1)[1 : _LOOK + 1])
    cells = (cell for record in csv.reader(io.StringIO(start), delimiter=separator) for cell in record)
    return any(_DECIMAL_COMMA.fullmatch(cell.strip()) for cell in cells)


def _check_lines(text: str, separator: str, file: Path) -> None:
    """Check that every line has as many fields as the header; a short line would become silent nulls."""
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
