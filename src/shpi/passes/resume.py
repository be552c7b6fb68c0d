"""Passes that continue after the process was killed: the result of each shard is kept in a folder.

A result is kept under a digest of what it depends on: the function with its settings, the contents of the
shard, and the versions of shpi and its libraries. So a folder may serve several passes, and results of
another log, configuration or version are simply not used.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from shpi._core.executors import Executor
from shpi._core.versions import versions
from shpi.data.shards import file_seal
from shpi.files.atomic import locked, writing
from shpi.files.remote import Remote
from shpi.passes.records import NoRecordError, read_record, write_record

A = TypeVar("A")
T = TypeVar("T")

PREFIX = "pass-"  # of the names of the files in the folder


@dataclass(frozen=True, kw_only=True)
class Resumable:
    """An executor that keeps results, and computes only those that it does not have.

    Args:
        executor: runs the tasks.
        folder: the folder of results; it is created if it does not exist.
    """

    executor: Executor
    folder: Path

    def run(self, function: Callable[[A], T], tasks: Sequence[A]) -> Iterator[tuple[int, T]]:
        """The kept results, then the others as they arrive."""
        start = _digest_of(function)
        if start is None:
            yield from self.executor.run(function, tasks)
            return
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        places = [self.folder / f"{PREFIX}{_key(start, task)}" for task in tasks]
        left: list[int] = []
        for number, place in enumerate(places):
            try:
                kept: T = read_record(place)
            except NoRecordError:
                left.append(number)
            else:
                yield number, kept
        for position, result in self.executor.run(function, [tasks[number] for number in left]):
            write_record(places[left[position]], result)
            yield left[position], result

    def forget(self) -> None:
        """Remove the kept results, and nothing else in the folder, after the work is done."""
        if self.folder.is_dir():
            with locked(self.folder):
                for path in self.folder.glob(f"{PREFIX}*"):
                    path.unlink(missing_ok=True)
            if not any(self.folder.iterdir()):
                self.folder.rmdir()


def _digest_of(function: Callable[..., Any]) -> bytes | None:
    """A digest of a function with its settings; None if it cannot be pickled.

    A function can state what its results depend on in an attribute ``depends_on``.
    """
    try:
        return content_digest((getattr(function, "depends_on", function), sorted(versions().items())))
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def content_digest(content: Any) -> bytes:
    """A digest of anything that can be pickled. The pickle is only digested, never read back."""
    stream = io.BytesIO()
    _ByContent(stream, protocol=5).dump(content)
    return blake2b(stream.getbuffer(), digest_size=16).digest()


class _ByContent(pickle.Pickler):
    """Gives equal texts and arrays equal bytes, whether they are one object or copies read from files."""

    def persistent_id(self, obj: Any) -> str | None:
        """A text that replaces an object in the pickle; None keeps the object."""
        if type(obj) is str:
            return sys.intern(obj)
        if type(obj) is np.ndarray and obj.dtype != object:
            order = "F" if obj.flags.f_contiguous and not obj.flags.c_contiguous else "C"
            content = blake2b(obj.tobytes(), digest_size=16).hexdigest()
            return sys.intern(f"array {obj.dtype.str} {obj.shape} {order} {content}")
        return None


def _key(start: bytes, task: Any) -> str:
    return blake2b(start + repr(_identity(task)).encode(), digest_size=16).hexdigest()


def _identity(task: Any) -> Any:
    """What identifies a task: for a file its contents, wherever it is."""
    if isinstance(task, Path | Remote):
        return file_seal(task)
    if isinstance(task, tuple):
        return tuple(_identity(item) for item in task)
    return blake2b(pickle.dumps(task, protocol=5), digest_size=16).hexdigest()
