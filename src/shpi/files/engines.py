"""Turn errors of the engines that shpi uses (polars, LightGBM, torch, the system) into shpi's own errors."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from shpi.errors import DataError, FileError, MemoryLimitError, ShpiError
from shpi.files.reading import read_error

_ENGINES = ("polars", "lightgbm", "torch", "pyarrow", "csv", "_csv", "scipy", "pyo3_runtime", "vowpalwabbit")
_MEMORY = re.compile(r"out of memory|cannot allocate|unable to allocate|bad_alloc|capacity overflow", re.I)
_SPACE = re.compile(r"no space left|disk quota", re.I)
_COLUMN = re.compile(r"column[: ]+[\"'`]([^\"'`]+)[\"'`]|[\"'`]([^\"'`]+)[\"'`] (?:not found|column)", re.I)


@contextmanager
def engine_errors(where: str, *, remedy: str = "", column: str = "") -> Iterator[None]:
    """Turn errors of an engine inside the block into errors of shpi.

    Args:
        where: the file or object that was being processed.
        remedy: advice to the user; there is a general default.
        column: the column that was being processed, if known.
    """
    try:
        yield
    except (ShpiError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        ours = translated(error, where, remedy=remedy, column=column)
        if ours is None:
            raise
        raise ours from error


def translated(
    error: BaseException, where: str = "", *, remedy: str = "", column: str = ""
) -> ShpiError | None:
    """The shpi error for an engine's error; None if the error is not an engine's."""
    text = first_line(error)
    if isinstance(error, MemoryError) or _MEMORY.search(text):
        return MemoryLimitError(
            expected="enough memory for the work",
            found=f"that the system gives no more ({text})",
            where=where,
            remedy="use fewer rows, columns or actions, prepare the log into shards, or a larger machine",
        )
    if _SPACE.search(text):
        return FileError(
            expected="space on the disk",
            found=text,
            where=where,
            remedy="free some space, or write elsewhere",
        )
    if isinstance(error, OSError) and error.errno is not None:
        if error.errno == errno.EPIPE:
            return None
        return read_error(error, where or str(error.filename or ""))
    if type(error).__module__.split(".")[0] not in _ENGINES:
        return None
    named = column or next((name for match in _COLUMN.findall(text) for name in match if name), "")
    place = f"column '{named}' of {where}" if named and where else (f"column '{named}'" if named else where)
    return DataError(
        expected="values that can be worked with",
        found=f"{type(error).__name__}: {text}",
        where=place,
        remedy=remedy or "look at the values and the type of this column, or write the file again",
    )


def first_line(error: BaseException) -> str:
    """The message of an error, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
