"""The segment files of one folder: one process appends, any number may read.

The folder is locked for as long as the process lives. A full segment is closed and a new one begins; only the
last one can have a torn end. The bytes cut off there were never acknowledged, but are kept in a file beside
it (``*.torn``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from shpi.errors import ConfigError, DataError
from shpi.files.atomic import flush_folder, new_file
from shpi.serve.store.frames import MAGIC, payload_at, read_frames, whole_length

SEGMENT_BYTES = 64 * 2**20  # a segment of this size is full
_SUFFIX = ".events"
_WIDEST = 40  # bits for the offset within a segment

Place = int  # number of the segment << 40 | offset of the frame


def segments(folder: Path) -> list[Path]:
    """The segment files, oldest first."""
    return sorted(folder.glob(f"*{_SUFFIX}"))


def segment_of(place: Place) -> int:
    """The number of the segment of a place."""
    return place >> _WIDEST


def number_of(path: Path) -> int:
    """The number of a segment."""
    return int(path.name.removesuffix(_SUFFIX))


def read_journal(folder: Path) -> Iterator[tuple[Place, bytes]]:
    """All whole frames, oldest first; for a process that only reads."""
    paths = segments(folder)
    for path in paths:
        yield from ((number_of(path) << _WIDEST | place, payload) for place, payload in read_frames(path))
        if path != paths[-1]:
            _check_closed(path)


def _check_closed(path: Path) -> None:
    whole, size = whole_length(path)
    if whole != size:
        raise DataError(
            expected="whole frames in a closed segment",
            found=f"a damaged one at byte {whole}",
            where=str(path),
            remedy="restore the file from a backup; what follows it is whole",
        )


class Journal:
    """The segments of a folder, open for appending."""

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder, self.segment_bytes = folder, segment_bytes
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(folder)
        self._readers: dict[int, int] = {}
        self.cut_bytes = 0  # bytes of a torn end cut off at opening
        paths = segments(folder)
        self._number = number_of(paths[-1]) if paths else 0
        self._file, self._end = self._open(self._path(self._number))
        self._broken = False

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}{_SUFFIX}"

    def _open(self, path: Path) -> tuple[int, int]:
        """Open a segment, after moving a torn end to another file; returns the file and its length."""
        end, size = whole_length(path) if path.exists() else (len(MAGIC), len(MAGIC))
        if size > end:
            self.cut_bytes = size - end
            with path.open("rb") as old, new_file(path.with_suffix(f".{end}.torn")) as aside:
                old.seek(end)
                aside.write(old.read())
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        os.pwrite(file, MAGIC, 0)
        os.ftruncate(file, end)
        os.fsync(file)
        flush_folder(self.folder)
        return file, end

    @property
    def next_place(self) -> Place:
        """The place of the next frame."""
        return self._number << _WIDEST | self._end

    def append(self, blob: bytes) -> None:
        """Make frames durable, all or none; raises OSError on failure."""
        if self._broken:  # after a failed flush the state of the disk is unknown
            raise OSError(5, "an earlier flush failed; the server must be started again")
        done = 0
        try:
            while done < len(blob):
                done += os.pwrite(self._file, blob[done:] if done else blob, self._end + done)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise
        try:
            os.fdatasync(self._file)
        except OSError:
            self._broken = True
            raise
        self._end += len(blob)

    @property
    def full(self) -> bool:
        """Whether the next frame belongs in a new segment."""
        return self._end >= self.segment_bytes

    def rotate(self) -> None:
        """Begin another segment."""
        file, end = self._open(self._path(self._number + 1))
        os.close(self._file)
        self._file, self._end, self._number = file, end, self._number + 1

    @property
    def number(self) -> int:
        """The number of the segment being written."""
        return self._number

    def remove(self, number: int) -> None:
        """Remove a closed segment."""
        assert number != self._number
        file = self._readers.pop(number, None)
        if file is not None:
            os.close(file)
        self._path(number).unlink(missing_ok=True)
        flush_folder(self.folder)

    def read(self, place: Place) -> bytes:
        """The payload at a place."""
        number, start = place >> _WIDEST, place & ((1 << _WIDEST) - 1)
        file = self._readers.get(number)
        if file is None:
            file = self._readers[number] = os.open(self._path(number), os.O_RDONLY | os.O_CLOEXEC)
        size = 4096
        while True:
            content = os.pread(file, size, start)
            payload = payload_at(content, 0)
            if payload is not None:
                return payload
            if len(content) < size:
                raise DataError(
                    expected="a whole frame",
                    found="a damaged one",
                    where=f"{self._path(number)}, byte {start}",
                )
            size *= 8

    def close(self) -> None:
        """Close all files and release the lock of the folder."""
        for file in (*self._readers.values(), self._file, self._lock):
            os.close(file)
        self._readers = {}


def _lock(folder: Path) -> int:
    """Lock a folder until the process ends; an error if another server holds the lock."""
    path = folder / "lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(file, 32, 0).decode(errors="replace").strip()
        os.close(file)
        raise ConfigError(
            expected="one server per folder",
            found=f"another one (process {owner or 'unknown'})",
            where=str(folder),
            remedy="stop it, choose another folder, or use Postgres for several workers",
        ) from None
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return file
