"""Save and load fitted values: one npz file whose entry ``manifest`` is JSON; no pickle.

{"format": "shpi-value", "version": 1, "shpi": "0.1.0", "value": {"kind": …, "settings": …, "children": …}}
"""

from __future__ import annotations

import json
import secrets
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shpi.errors import DataError
from shpi.features.parts import Parts, put_together, take_apart
from shpi.values.base import FittedValue

FORMAT, VERSION, MANIFEST = "shpi-value", 1, "manifest"

Arrays = dict[str, NDArray[Any]]


def value_to_arrays(value: FittedValue) -> Arrays:
    """A fitted value as named arrays; the entry ``manifest`` says what they are."""
    from shpi import __version__

    arrays: Arrays = {}
    structure = _flatten(take_apart(value), "", arrays)
    manifest = {"format": FORMAT, "version": VERSION, "shpi": __version__, "value": structure}
    return {**arrays, MANIFEST: np.array(json.dumps(manifest, allow_nan=False))}


def value_from_arrays(arrays: Mapping[str, NDArray[Any]], where: str = "") -> FittedValue:
    """The inverse of `value_to_arrays`."""
    try:
        manifest = json.loads(str(arrays[MANIFEST][()]))
        if manifest["format"] != FORMAT or manifest["version"] != VERSION:
            raise DataError(
                expected=f"format '{FORMAT}', version {VERSION}",
                found=f"'{manifest['format']}', version {manifest['version']}",
                where=where,
                remedy="load it with the version of shpi that wrote it",
            )
        value = put_together(_gather(manifest["value"], "", arrays))
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise DataError(expected="the arrays of a saved value", found=repr(error), where=where) from None
    if not isinstance(value, FittedValue):
        raise DataError(expected="a value", found=f"a {type(value).__name__}", where=where)
    return value


def save_value(value: FittedValue, path: str | Path) -> Path:
    """Write a fitted value to the file ``path``: everything or nothing."""
    target = Path(path)
    arrays = value_to_arrays(value)
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with new.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)
    return target


def load_value(path: str | Path) -> FittedValue:
    """The value in a file that `save_value` wrote."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise DataError(expected="a file with a saved value", found="none", where=str(path)) from None
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError) as error:
        raise DataError(expected="a readable npz file", found=str(error), where=str(path)) from None
    return value_from_arrays(arrays, str(path))


def _flatten(parts: Parts, place: str, arrays: Arrays) -> dict[str, Any]:
    for name, array in parts.arrays.items():
        arrays[f"{place}{name}"] = array
    return {
        "kind": parts.kind,
        "settings": dict(parts.settings),
        "arrays": list(parts.arrays),
        "children": {n: _flatten(child, f"{place}{n}/", arrays) for n, child in parts.children.items()},
    }


def _gather(structure: Mapping[str, Any], place: str, arrays: Mapping[str, NDArray[Any]]) -> Parts:
    return Parts(
        kind=structure["kind"],
        settings=structure["settings"],
        arrays={name: arrays[f"{place}{name}"] for name in structure["arrays"]},
        children={n: _gather(c, f"{place}{n}/", arrays) for n, c in structure["children"].items()},
    )
