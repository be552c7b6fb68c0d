"""The result of a pass on one shard as a file: arrays, numbers, dataclasses, logs and errors; no pickle.

A record is an npz whose entry ``structure`` is JSON. Records name classes of shpi that this process has
already imported; a file that names anything else, or that is damaged, is not a record.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shpi import errors
from shpi.data.canonical import read_canonical, write_canonical
from shpi.data.logged import LoggedData
from shpi.errors import ShpiError
from shpi.files.atomic import new_file
from shpi.files.npz import digest, read_npz, write_npz
from shpi.files.reading import parse_json

Arrays = dict[str, NDArray[Any]]
STRUCTURE = "structure"
_WORDS = ("expected", "found", "where", "remedy")  # attributes of an error


class NoRecordError(Exception):
    """There is no record, or none that can be trusted."""


def write_record(place: Path, value: Any) -> bool:
    """Write a value; return False if its type cannot be recorded."""
    if isinstance(value, LoggedData):
        write_canonical(value, place.with_suffix(".parquet"))
        return True
    arrays: Arrays = {}
    try:
        structure = _taken_apart(value, arrays)
    except NoRecordError:
        return False
    content = {"value": structure, "digest": digest(arrays)}
    arrays[STRUCTURE] = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
    with new_file(place.with_suffix(".npz")) as file:
        write_npz(file, arrays)
    return True


def read_record(place: Path) -> Any:
    """The value that was written there; `NoRecordError` if there is none that can be trusted."""
    try:
        if place.with_suffix(".parquet").exists():
            return read_canonical(place.with_suffix(".parquet"))
        arrays = read_npz(place.with_suffix(".npz"))
        content = parse_json(arrays.pop(STRUCTURE).tobytes(), str(place), finite=False)
        if content["digest"] != digest(arrays):
            raise NoRecordError("damaged")
        return _put_together(content["value"], arrays)
    except (ShpiError, OSError, KeyError, TypeError, ValueError) as error:
        raise NoRecordError(str(error)) from None


def _taken_apart(value: Any, arrays: Arrays) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return {"plain": value}
    if isinstance(value, np.generic | np.ndarray):
        array = np.asarray(value)
        if array.dtype.kind not in "fiubU":
            raise NoRecordError(str(array.dtype))
        name = f"a{len(arrays)}"
        arrays[name] = array
        return {"array": name, "scalar": isinstance(value, np.generic)}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [_taken_apart(item, arrays) for item in value]}
    if type(value) is dict:
        return {"dict": [[_taken_apart(item, arrays) for item in pair] for pair in value.items()]}
    if isinstance(value, LoggedData):
        return {"log": _taken_apart(_to_bytes(value), arrays)}
    if isinstance(value, ShpiError) and type(value).__init__ is ShpiError.__init__:
        words = {name: getattr(value, name) for name in _WORDS}
        return {"error": type(value).__name__, "fields": words}
    if is_dataclass(value) and not isinstance(value, type) and _is_ours(type(value)):
        kept = {field.name: _taken_apart(getattr(value, field.name), arrays) for field in fields(value)}
        return {"record": f"{type(value).__module__}:{type(value).__qualname__}", "fields": kept}
    raise NoRecordError(type(value).__name__)


def _put_together(structure: Any, arrays: Arrays) -> Any:
    (kind, content), *others = structure.items()
    if kind == "plain":
        return content
    if kind == "array":
        return arrays[content][()] if structure["scalar"] else arrays[content]
    if kind in ("tuple", "list"):
        items = [_put_together(item, arrays) for item in content]
        return tuple(items) if kind == "tuple" else items
    if kind == "dict":
        return {_put_together(key, arrays): _put_together(item, arrays) for key, item in content}
    if kind == "log":
        return _from_bytes(_put_together(content, arrays))
    if kind == "error":
        return _error(content, structure["fields"])
    if kind == "record" and others:
        cls = _class(content)
        return cls(**{name: _put_together(item, arrays) for name, item in structure["fields"].items()})
    raise NoRecordError(str(kind))


def _to_bytes(logs: LoggedData) -> NDArray[np.uint8]:
    with tempfile.TemporaryDirectory(prefix="shpi-record-") as folder:
        return np.fromfile(write_canonical(logs, Path(folder) / "log.parquet"), dtype=np.uint8)


def _from_bytes(content: NDArray[np.uint8]) -> LoggedData:
    with tempfile.TemporaryDirectory(prefix="shpi-record-") as folder:
        content.tofile(Path(folder) / "log.parquet")
        return read_canonical(Path(folder) / "log.parquet")


def _error(name: str, words: dict[str, str]) -> ShpiError:
    cls = getattr(errors, name, None)
    if not isinstance(cls, type) or not issubclass(cls, ShpiError) or set(words) != set(_WORDS):
        raise NoRecordError(name)
    return cls(**words)


def _class(text: str) -> Any:
    """A class that is already imported: reading a file never imports anything."""
    module, _, name = text.partition(":")
    cls = getattr(sys.modules.get(module), name, None)
    if not isinstance(cls, type) or not is_dataclass(cls) or not _is_ours(cls):
        raise NoRecordError(text)
    return cls


def _is_ours(cls: type) -> bool:
    initialised = all(field.init for field in fields(cls))
    return cls.__module__.split(".")[0] == "shpi" and initialised
