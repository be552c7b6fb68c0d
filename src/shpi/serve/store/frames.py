r"""A segment: a file of frames, each with its length and checksum, so that a torn end is found and cut.

    b"SHPIEV1\n"  then  { length u32 | crc32 u32 | payload }*          little-endian

A record counts once its frame is complete. A process that dies while it writes leaves half a frame, or none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from shpi.errors import DataError

MAGIC = b"SHPIEV1\n"
_HEAD = struct.Struct("<II")
HEAD = _HEAD.size
LONGEST = 16 * 2**20  # most bytes of a record


def head(payload: bytes) -> bytes:
    """The length and the checksum of a payload, which stand before it."""
    return _HEAD.pack(len(payload), crc32(payload))


def frame(payload: bytes) -> bytes:
    """A payload with its length and checksum."""
    return head(payload) + payload


def payload_at(content: bytes | memoryview, place: int) -> bytes | None:
    """The payload of the frame at an offset; None if it is torn or damaged."""
    if place + HEAD > len(content):
        return None
    length, checksum = _HEAD.unpack_from(content, place)
    if length > LONGEST or place + HEAD + length > len(content):
        return None
    payload = bytes(content[place + HEAD : place + HEAD + length])
    return payload if crc32(payload) == checksum else None


def read_frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """The offsets and payloads of a segment up to the first torn frame; see `whole_length` for its offset."""
    content = _content(path)
    place = len(MAGIC)
    while (payload := payload_at(content, place)) is not None:
        yield place, payload
        place += HEAD + len(payload)


def whole_length(path: Path) -> tuple[int, int]:
    """The bytes of a segment that are whole frames, and its total bytes."""
    content = _content(path)
    place = len(MAGIC)
    while (payload := payload_at(content, place)) is not None:
        place += HEAD + len(payload)
    return place, max(len(content), len(MAGIC))


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if not MAGIC.startswith(content[: len(MAGIC)]):
        raise DataError(
            expected="a segment of events",
            found=f"a file that starts with {content[:8]!r}",
            where=str(path),
            remedy="restore it from a backup, or move it elsewhere",
        )
    return content
