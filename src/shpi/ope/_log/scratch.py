"""A temporary folder of arrays that several processes can map: blocks of a log, and intermediate results.

The folder is removed when nothing uses it any more; the next evaluation removes one that a killed process
left. On a cluster all nodes must see it: set ``TMPDIR`` to a shared disk.
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
from dataclasses import dataclass, field, fields, is_dataclass
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
_MAPPED = 1 << 16  # bytes; files of at least this size are memory-mapped, smaller ones read
_CODES, _METRIC = "user_codes", "metric-"


class Scratch:
    """The temporary folder; it lives as long as this object. Pickled copies borrow it; see `opened_from`."""

    def __init__(self) -> None:
        _sweep()
        self._folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-")
        self.path = Path(self._folder.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _borrowed, ()


class _Borrowed:
    """A folder that another process owns and removes."""

    def __init__(self, path: Path) -> None:
        self.path = path


# A message does not name its own folder, so that equal messages in different folders have equal digests.
_opened_from: ContextVar[Path] = ContextVar("the folder of the message that is being opened")


def _borrowed() -> _Borrowed:
    return _Borrowed(_opened_from.get())


def opened_from(folder: Path, message: bytes) -> Any:
    """Unpickle a message from this folder. The caller must have checked its digest."""
    token = _opened_from.set(folder)
    try:
        return pickle.loads(message)
    finally:
        _opened_from.reset(token)


def require_shared(folder: Path) -> None:
    """Raise an error if this machine cannot see the driver's folder."""
    if not folder.is_dir():
        raise ConfigError(
            expected="a folder for temporary arrays that every machine sees under the same path",
            found="no such folder on this one",
            where=f"{folder}, machine {platform.node()}",
            remedy="set TMPDIR to a folder on a disk that all machines share, then start the command again",
        )


def write_array(values: NDArray[Any], path: Path) -> None:
    """Write an array as a file, whole or not at all."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    with writing(path):
        with draft.open("wb") as file:
            np.save(file, np.ascontiguousarray(values), allow_pickle=False)
        draft.replace(path)


def read_array(path: Path) -> NDArray[Any]:
    """Read an array from its file, memory-mapped if it is large."""
    if path.stat().st_size < _MAPPED:
        small: NDArray[Any] = np.load(path, allow_pickle=False)
        return small
    mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
    return mapped


# ---------------------------------------------------------------------- logs


def write_log(logs: LoggedData, folder: Path) -> dict[str, Any]:
    """Write the arrays of a log; return its other fields, for `read_log`."""
    folder.mkdir()
    rest: dict[str, Any] = {}
    for each in fields(logs):
        value = getattr(logs, each.name)
        if isinstance(value, np.ndarray):
            write_array(value.astype(np.str_) if value.dtype.kind == "O" else value, folder / each.name)
        elif each.name not in ("metrics", "ledger"):
            rest[each.name] = value
    for name, values in logs.metrics.items():
        write_array(values, folder / f"{_METRIC}{name.encode().hex()}")
    write_array(logs.user_codes, folder / _CODES)
    return rest


def read_log(folder: Path, rest: Mapping[str, Any]) -> LoggedData:
    """Read a log of `write_log`. Cached properties such as `LoggedData.steps` are computed again."""
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


# ---------------------------------------------------------------------- intermediate results


@dataclass(eq=False)
class Keeper:
    """Keeps arrays, and records of arrays, that were computed from a block and are needed in later passes.

    As many bytes as are left stay in memory, the rest goes to a folder. If none are, all of it goes to the
    folder, where other processes see it.
    """

    _scratch: Scratch | None
    _left: int  # bytes that may still be held in memory
    _held: dict[tuple[int, Hashable], Any] = field(default_factory=dict, init=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Keeper, (self._folder(), 0)

    def keep(self, number: int, key: Hashable, make: Callable[[], T], kind: type[T] | None = None) -> T:
        """The result of ``make`` for a block, computed once.

        Args:
            number: number of the block.
            key: name of the result, unique for the block; strings and numbers only.
            make: returns an array, or a record of type ``kind`` whose fields are arrays or None.
            kind: type of the record; None for an array.
        """
        place = (number, key)
        if place in self._held:
            result: T = self._held[place]
            return result
        path = None if self._scratch is None else self._scratch.path / self._name(number, key)
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
        """Whether this many bytes fit into the memory left, or into half of the free disk space."""
        return size <= self._left or size < shutil.disk_usage(self._folder().path).free / 2

    def _folder(self) -> Scratch:
        if self._scratch is None:
            self._scratch = Scratch()
        return self._scratch

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
        path.touch()  # marks the record as complete

    @staticmethod
    def _read(path: Path, kind: type[Any] | None) -> Any:
        if kind is None:
            return read_array(path)
        files = {each.name: path.with_name(f"{path.name}-{each.name}") for each in fields(kind)}
        return kind(**{name: read_array(file) if file.exists() else None for name, file in files.items()})


def _arrays(made: Any) -> dict[str, NDArray[Any]]:
    if isinstance(made, np.ndarray):
        return {"": made}
    assert is_dataclass(made)
    values = {each.name: getattr(made, each.name) for each in fields(made)}
    return {name: value for name, value in values.items() if value is not None}


def _sweep() -> None:
    """Remove the folders of processes that no longer run."""
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
