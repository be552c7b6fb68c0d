"""A log in shards as plain arrays in a temporary folder, with what was computed on each shard.

An evaluation passes over a log many times. Each shard is read, checked and decoded once; its arrays are then
mapped into memory from the folder, and so is what costs more than reading it back: pi(.|x), which is asked of
the policy once per row, and the values of fitted models. The folder goes when nothing uses it any more; one
that a killed process left is removed by the next evaluation.

It takes about 4 (d + 10) bytes a decision, and 8 |A| more for pi(.|x), which is left out where that is more
than half of what is free on the disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.files.atomic import writing

T = TypeVar("T")

PREFIX = "shpi-evaluate-"
_LEAST = 4096  # bytes; smaller arrays stay in memory
_KEPT = "_spill"


class Spill:
    """The arrays of all shards. Iterating is one pass."""

    def __init__(self, source: ShardedLog) -> None:
        _sweep()
        self.source = source
        self.passes = 0
        self._folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-")
        self._logs: dict[int, LoggedData] = {}  # arrays of these are mapped, not held
        self._kept: dict[tuple[int, Hashable], Any] = {}
        self._files = 0

    @classmethod
    def of(cls, source: ShardedLog) -> Spill:
        """The one that is in use for this log, or a new one."""
        known: weakref.ref[Spill] | None = vars(source).get(_KEPT)
        spill = None if known is None else known()
        if spill is None:
            spill = cls(source)
            vars(source)[_KEPT] = weakref.ref(spill)
        return spill

    def __iter__(self) -> Iterator[LoggedData]:
        self.passes += 1
        return (self.logs(number) for number in range(len(self.source)))

    def logs(self, number: int) -> LoggedData:
        """A shard. What is computed from its arrays (`LoggedData.steps`) is not kept from pass to pass."""
        if number not in self._logs:
            (logs,) = replace(self.source, files=(self.source.files[number],))
            self._logs[number] = self._stored(logs)
        kept = self._logs[number]
        logs = replace(kept)
        vars(logs)["user_codes"] = vars(kept)["user_codes"]
        return logs

    def _stored(self, logs: LoggedData) -> LoggedData:
        values = {field.name: getattr(logs, field.name) for field in fields(logs)}
        arrays: dict[str, Any] = {
            name: self._map(value) for name, value in values.items() if isinstance(value, np.ndarray)
        }
        mapped = replace(
            logs,
            **arrays,
            metrics={name: self._map(array) for name, array in logs.metrics.items()},
        )
        vars(mapped)["user_codes"] = self._map(logs.user_codes)
        return mapped

    def keep(self, number: int, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` returns for a shard, made once; only arrays, and records of arrays, are kept."""
        place = (number, key)
        if place not in self._kept:
            made = make()
            kept = self._keepable(made)
            if kept is None:
                return made
            self._kept[place] = kept
        result: T = self._kept[place]
        return result

    def has_room(self, cells: int) -> bool:
        """Whether so many numbers would fit into half of what is free."""
        return 8 * cells < shutil.disk_usage(self._folder.name).free / 2

    def _keepable(self, made: Any) -> Any:
        if isinstance(made, np.ndarray):
            return self._map(made)
        if is_dataclass(made) and not isinstance(made, type):
            values = [getattr(made, field.name) for field in fields(made)]
            if all(value is None or isinstance(value, np.ndarray) for value in values):
                return replace(
                    made,
                    **{
                        field.name: None if value is None else self._map(value)
                        for field, value in zip(fields(made), values, strict=True)
                    },
                )
        return None

    def _map(self, array: NDArray[Any]) -> NDArray[Any]:
        """The same array, in a file."""
        if array.dtype == object:  # text is text, whatever holds it
            array = array.astype(str)
        if array.nbytes < _LEAST:
            return np.array(array)
        path = Path(self._folder.name) / f"{self._files}.npy"
        self._files += 1
        with writing(path):
            np.save(path, array, allow_pickle=False)
        mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
        return mapped


@dataclass(frozen=True, eq=False)
class Same:
    """A thing as a key: equal to nothing but itself, and alive as long as the key is."""

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


@dataclass(frozen=True, kw_only=True, eq=False)
class Kept:
    """What is kept for one shard of one problem."""

    spill: Spill
    number: int  # of the shard
    problem: Hashable  # what is fitted differs from problem to problem
    policy: Hashable  # what the policy says is the same for all problems about it

    def keep(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` returns, made once for this problem and shard."""
        return self.spill.keep(self.number, (self.problem, key), make)

    def asked(self, key: Hashable, make: Callable[[], T]) -> T:
        """The same for what the policy was asked, once for all problems about it."""
        return self.spill.keep(self.number, (self.policy, key), make)


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
