"""A temporary folder of arrays that several processes can map: blocks of a log, and what was made of them.

The folder goes when nothing uses it any more; one that a killed process left is removed by the next
evaluation. With a cluster it must be visible to all nodes: set ``TMPDIR`` to a shared disk.
"""

from __future__ import annotations

import os
import pickle
import platform
import shutil
import tempfile
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shpi.data._log.ledger import Ledger
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.files.atomic import writing

T = TypeVar("T")

PREFIX = "shpi-evaluate-"
_MAPPED = 1 << 16  # bytes; smaller files are read
_CODES, _METRIC = "user_codes", "metric-"


class Scratch:
    """The folder, as long as this object lives. Only its path is sent to other processes."""

    def __init__(self) -> None:
        _sweep()
        self._folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-")
        self.path = Path(self._folder.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _borrowed, ()


class _Borrowed:
    """The folder of another process."""

    def __init__(self, path: Path) -> None:
        self.path = path


# A message does not name the folder that it is in, so that its digest is that of the same message elsewhere.
_opened_from: ContextVar[Path] = ContextVar("the folder of the message that is being opened")


def _borrowed() -> _Borrowed:
    return _Borrowed(_opened_from.get())


def opened_from(folder: Path, message: bytes) -> Any:
    """What a message of this folder says; the caller has compared its digest."""
    token = _opened_from.set(folder)
    try:
        return pickle.loads(message)
    finally:
        _opened_from.reset(token)


def require_shared(folder: Path) -> None:
    """A worker on another machine must see the driver's folder."""
    if not folder.is_dir():
        raise ConfigError(
            expected="a folder for temporary arrays that every machine sees under the same path",
            found="no such folder on this one",
            where=f"{folder}, machine {platform.node()}",
            remedy="set TMPDIR to a folder on a disk that all machines share, then start the command again",
        )


def write_array(values: NDArray[Any], path: Path) -> None:
    """A file that is there as a whole or not at all."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    with writing(path):
        with draft.open("wb") as file:
            np.save(file, np.ascontiguousarray(values), allow_pickle=False)
        draft.replace(path)


def read_array(path: Path) -> NDArray[Any]:
    """Mapped, if it is large."""
    if path.stat().st_size < _MAPPED:
        small: NDArray[Any] = np.load(path, allow_pickle=False)
        return small
    mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
    return mapped


# ---------------------------------------------------------------------- logs


def write_log(logs: LoggedData, folder: Path) -> dict[str, Any]:
    """Write the arrays of a log; what else it holds is returned, for `read_log`."""
    folder.mkdir()
    rest: dict[str, Any] = {}
    for field in fields(logs):
        value = getattr(logs, field.name)
        if isinstance(value, np.ndarray):
            write_array(value.astype(np.str_) if value.dtype.kind == "O" else value, folder / field.name)
        elif field.name not in ("metrics", "ledger"):
            rest[field.name] = value
    for name, values in logs.metrics.items():
        write_array(values, folder / f"{_METRIC}{name.encode().hex()}")
    write_array(logs.user_codes, folder / _CODES)
    return rest


def read_log(folder: Path, rest: Mapping[str, Any]) -> LoggedData:
    """The log of `write_log`; what is computed from its arrays (`LoggedData.steps`) is not kept."""
    arrays: dict[str, Any] = {}
    metrics: dict[str, NDArray[Any]] = {}
    for file in sorted(folder.iterdir()):
        if file.name.startswith(_METRIC):
            metrics[bytes.fromhex(file.name.removeprefix(_METRIC)).decode()] = read_array(file)
        else:
            arrays[file.name] = read_array(file)
    codes, rows = arrays.pop(_CODES), len(arrays["actions"])
    logs = LoggedData(**{**rest, **arrays}, metrics=metrics, ledger=Ledger(rows_in=rows, rows_used=rows))
    vars(logs)[_CODES] = codes
    return logs


# ---------------------------------------------------------------------- what was made


class Keeper:
    """Arrays, and records of arrays, that were made from a block and are needed in later passes.

    Up to ``held`` bytes stay in memory, the rest goes to a folder. Without memory (0) other processes see
    all of it.
    """

    def __init__(self, scratch: Scratch | None, held: int) -> None:
        self._scratch, self._left = scratch, held
        self._held: dict[tuple[int, Hashable], Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Keeper, (self._folder(), 0)

    def keep(self, number: int, key: Hashable, make: Callable[[], T], kind: type[T] | None = None) -> T:
        """What ``make`` returns for a block, made once.

        Args:
            number: of the block.
            key: tells it from all else; made of text and numbers.
            make: returns an array, or a record of type ``kind`` whose fields are arrays or None.
            kind: type of the record; None for an array.
        """
        place = (number, key)
        if place in self._held:
            result: T = self._held[place]
            return result
        path = self._path(number, key)
        if path is not None and path.exists():
            kept: T = self._read(path, kind)
            return kept
        made = make()
        size = sum(array.nbytes for array in _arrays(made).values())
        if size <= self._left:
            self._left -= size
            self._held[place] = made
            return made
        path = path or self._folder().path / self._name(number, key)
        self._write(made, path)
        mapped: T = self._read(path, kind)
        return mapped

    def has_room(self, size: int) -> bool:
        """Whether so many bytes would fit into memory, or into half of what is free on the disk."""
        return size <= self._left or size < shutil.disk_usage(self._folder().path).free / 2

    def _folder(self) -> Scratch:
        if self._scratch is None:
            self._scratch = Scratch()
        return self._scratch

    def _path(self, number: int, key: Hashable) -> Path | None:
        return None if self._scratch is None else self._scratch.path / self._name(number, key)

    @staticmethod
    def _name(number: int, key: Hashable) -> str:
        return f"kept-{number:06d}-{blake2b(repr(key).encode(), digest_size=12).hexdigest()}"

    @staticmethod
    def _write(made: Any, path: Path) -> None:
        if isinstance(made, np.ndarray):
            write_array(made, path)
            return
        for name, array in _arrays(made).items():
            write_array(array, path.with_name(f"{path.name}-{name}"))
        path.touch()  # all are there

    @staticmethod
    def _read(path: Path, kind: type[Any] | None) -> Any:
        if kind is None:
            return read_array(path)
        files = {field.name: path.with_name(f"{path.name}-{field.name}") for field in fields(kind)}
        return kind(**{name: read_array(file) if file.exists() else None for name, file in files.items()})


def _arrays(made: Any) -> dict[str, NDArray[Any]]:
    if isinstance(made, np.ndarray):
        return {"": made}
    assert is_dataclass(made)
    values = {field.name: getattr(made, field.name) for field in fields(made)}
    return {name: value for name, value in values.items() if value is not None}


def _sweep() -> None:
    """Remove the folders of processes that are dead."""
    for place in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        owner = place.name.removeprefix(PREFIX).split("-")[0]
        if owner.isdigit() and not _alive(int(owner)):
            shutil.rmtree(place, ignore_errors=True)


def _alive(process: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True
