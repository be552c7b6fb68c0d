"""Save and load fitted values: one npz file whose entry ``manifest`` is JSON; no pickle.

{"format": "shpi-value", "version": 2, "shpi": "0.1.0", "value": {"kind": …, "settings": …, "children": …},
 "sha256": "…"}            of the structure and the contents of the arrays; version 1 had none
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shpi.errors import DataError
from shpi.features.parts import put_together, take_apart
from shpi.features.structure import NODE, from_structure, structure_digest, to_structure
from shpi.files.atomic import new_file, writing
from shpi.files.npz import Arrays, read_npz, write_npz
from shpi.files.reading import parse_json
from shpi.files.schema import REMEDY, Record, check
from shpi.values.base import FittedValue

FORMAT, VERSION, MANIFEST = "shpi-value", 2, "manifest"
_FIRST = {"format": str, "version": int, "shpi": str, "value": NODE}
SCHEMAS = {1: Record(_FIRST), 2: Record({**_FIRST, "sha256": str})}


def value_to_arrays(value: FittedValue) -> Arrays:
    """A fitted value as named arrays; the entry ``manifest`` says what they are."""
    from shpi import __version__

    arrays: Arrays = {}
    structure = to_structure(take_apart(value), arrays)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "shpi": __version__,
        "value": structure,
        "sha256": structure_digest(structure, arrays),
    }
    return {**arrays, MANIFEST: np.array(json.dumps(manifest, allow_nan=False))}


def value_from_arrays(arrays: Mapping[str, NDArray[Any]], where: str = "") -> FittedValue:
    """The inverse of `value_to_arrays`."""
    entry = arrays.get(MANIFEST)
    if entry is None or entry.dtype.kind != "U" or entry.shape != ():
        raise DataError(
            expected="the arrays of a saved value", found="no manifest among them", where=where, remedy=REMEDY
        )
    manifest = parse_json(str(entry[()]), where)
    version = manifest.get("version") if isinstance(manifest, dict) else None
    if type(version) is not int or manifest.get("format") != FORMAT or version not in SCHEMAS:
        raise DataError(
            expected=f"format '{FORMAT}', version {' or '.join(map(str, SCHEMAS))}",
            found=f"version {version!r}"[:80] if isinstance(manifest, dict) else "another kind of file",
            where=where,
            remedy="load it with the version of shpi that wrote it",
        )
    check(manifest, SCHEMAS[version], where)
    mine = {name: array for name, array in arrays.items() if name != MANIFEST}
    if version > 1 and structure_digest(manifest["value"], mine) != manifest["sha256"]:
        raise DataError(
            expected="contents that agree with their checksum",
            found="different ones: the file was changed or damaged after it was written",
            where=where,
            remedy="copy the file again from where it was saved",
        )
    value = put_together(from_structure(manifest["value"], mine, where))
    if not isinstance(value, FittedValue):
        raise DataError(expected="a value", found=f"a {type(value).__name__}", where=where, remedy=REMEDY)
    return value


def save_value(value: FittedValue, path: str | Path) -> Path:
    """Write a fitted value to the file ``path``: everything or nothing."""
    target = Path(path)
    arrays = value_to_arrays(value)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with new_file(target) as file:
        write_npz(file, arrays)
    return target


def load_value(path: str | Path) -> FittedValue:
    """The value in a file that `save_value` wrote."""
    try:
        arrays = read_npz(Path(path))
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            expected="a file with a saved value", found="none", where=str(path), remedy="give its path"
        ) from None
    return value_from_arrays(arrays, str(path))
