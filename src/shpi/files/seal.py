"""A checksum of a Parquet file inside the file itself, checked before any parser sees the file.

Parsers of Parquet trust the sizes that a file states, and a damaged one can end the process. So the writer
leaves room for a CRC in the metadata, computes it over the file with zeros there, and fills it in.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import IO

from shpi.errors import DataError
from shpi.files.reading import open_regular

MARK = b"shpi-file-crc32:"
BLANK = (MARK + b"00000000").decode()
DAMAGED = "the file is damaged or was changed: write or copy it again"
_TAIL = 64 * 2**20  # limit on the bytes of metadata that are searched
_BLOCK = 2**22  # bytes read at a time
_SEAL = re.compile(re.escape(MARK) + rb"([0-9a-f]{8})")


def seal(file: IO[bytes]) -> None:
    """Fill in the checksum of a file, open for reading and writing, that has `BLANK` in its metadata."""
    place = _find(file)
    if place is None:
        raise ValueError("the metadata has no room for a checksum")
    crc = _crc(file, place)
    file.seek(place)
    file.write(f"{crc:08x}".encode())


def read_seal(path: Path) -> str | None:
    """The checksum that a file carries; None for a file without one."""
    with open_regular(path) as file:
        place = _find(file)
        if place is None:
            return None
        file.seek(place)
        return file.read(8).decode()


def check_seal(path: Path) -> None:
    """Raise a DataError if the file has a checksum that does not agree with its contents."""
    with open_regular(path) as file:
        place = _find(file)
        if place is None:
            return
        file.seek(place)
        stated = file.read(8).decode()
        if f"{_crc(file, place):08x}" != stated:
            raise DataError(
                expected="contents that agree with the checksum in the file",
                found="different ones: the file was changed or damaged after it was written",
                where=str(path),
                remedy=DAMAGED,
            )


def _find(file: IO[bytes]) -> int | None:
    """The position of the eight digits: after the last mark in the metadata at the end of the file."""
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _metadata(file, size))
    file.seek(start)
    tail = file.read(size - start)
    at = tail.rfind(MARK)
    match = _SEAL.match(tail, at) if at >= 0 else None
    return None if match is None else start + match.start(1)


def _metadata(file: IO[bytes], size: int) -> int:
    """Bytes of Parquet's metadata, as the end of the file states; without a statement, the search limit.

    Reading no more matters: opening a folder reads the seal of every shard.
    """
    file.seek(max(0, size - 8))
    end = file.read(8)
    stated = int.from_bytes(end[:4], "little") + 8
    return stated if end[4:] == b"PAR1" and stated <= min(size, _TAIL) else _TAIL


def _crc(file: IO[bytes], place: int) -> int:
    """CRC of a file with zeros at the place of the checksum."""
    file.seek(0)
    total, start = 0, 0
    while block := file.read(_BLOCK):
        inside = place - start
        if -8 < inside < len(block):
            editable = bytearray(block)
            for offset in range(max(inside, 0), min(inside + 8, len(block))):
                editable[offset] = ord("0")
            block = bytes(editable)
        total = zlib.crc32(block, total)
        start += len(block)
    return total
