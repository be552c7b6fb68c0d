"""Detect the format of a file from its content and name, and decode its text."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import Literal

from shpi._core.memory import require_memory
from shpi.errors import DataError

Format = Literal["parquet", "csv", "jsonl"]

CSV_NAMES = (".csv", ".tsv", ".txt", ".psv")
JSON_NAMES = (".jsonl", ".ndjson", ".json", ".dsjson")
TEXT_PATTERNS = tuple(f"*{name}{zipped}" for name in (*CSV_NAMES, *JSON_NAMES) for zipped in ("", ".gz"))
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
TEXT_FACTOR = {"CSV": 10, "JSON": 13}  # peak memory / bytes of text; measured: 6 to 10, and 13
_STEP = 1 << 24  # bytes unpacked at a time
_LOOK = 4096  # bytes at the start of a file that identify its format


def format_of(file: Path) -> Format:
    """Parquet by its magic number, JSON lines by the first character, CSV otherwise if the name says so."""
    name = file.name.lower().removesuffix(".gz")
    with file.open("rb") as stream:
        head = stream.read(_LOOK)
    if head[:4] == b"PAR1":
        return "parquet"
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(31).decompress(head)
        except zlib.error:
            head = b""
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first == b"{" or (first == b"[" and name.endswith(JSON_NAMES)) or name.endswith(JSON_NAMES):
        return "jsonl"
    return "csv" if name.endswith(CSV_NAMES) else "parquet"


def text_of(file: Path, what: str) -> tuple[str, str]:
    """The text of a file and its encoding: by its byte order mark, else UTF-8, else Windows-1252."""
    try:
        raw = _bytes_of(file, what)
        for mark, encoding in _BOMS:
            if raw.startswith(mark):
                return raw.decode(encoding), encoding
        try:
            return raw.decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            if b"\x00" in raw:
                raise
            return raw.decode("cp1252"), "cp1252"
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(
            expected=f"a complete {what} file of text",
            found=f"one that cannot be read ({str(error)[:160] or type(error).__name__})",
            where=str(file),
            remedy="the file is truncated or in an unknown encoding: write or copy it again, in UTF-8",
        ) from None


def _bytes_of(file: Path, what: str) -> bytes:
    """The unpacked content; raises before it reads a file whose table cannot fit in memory.

    A failed allocation inside polars would end the process without an explanation.
    """
    _require(file, what, file.stat().st_size)
    raw = file.read_bytes()
    if raw[:2] != b"\x1f\x8b":
        return raw
    parts, size = [], 0
    with gzip.open(io.BytesIO(raw)) as stream:
        while piece := stream.read(_STEP):
            parts.append(piece)
            size += len(piece)
            _require(file, what, size)  # the size that the file states cannot be trusted
    return b"".join(parts)


def _require(file: Path, what: str, size: int) -> None:
    require_memory(
        TEXT_FACTOR[what] * size,
        f"the {size / 2**20:,.1f} MiB of text in {file}",
        "write the table as Parquet files and prepare them into shards (shpi.data.prepare_shards), "
        "or read fewer rows",
    )
