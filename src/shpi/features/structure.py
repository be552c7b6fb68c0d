"""The parts of an object as JSON plus named arrays, and back: the saved form of policies, values and worlds.

    {"kind": "policies/greedy", "settings": {}, "arrays": {"w": {"shape": [3], "dtype": "float64"}},
     "children": {"scorer": …}}

The arrays of a child are prefixed with its name: ``scorer/weights``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shpi.errors import DataError
from shpi.features.parts import Parts
from shpi.files.npz import Arrays, digest
from shpi.files.schema import Record, whole

_CHILDREN: dict[type, Any] = {}
_DESCRIBED = {str: Record({"shape": [whole()], "dtype": str})}
NODE = Record(
    {
        "kind": str,
        "settings": {str: (None, bool, int, float, str)},
        "arrays": (_DESCRIBED, [str]),  # only the names in version 1 of values and worlds
        "children": _CHILDREN,
    }
)
_CHILDREN[str] = NODE


def to_structure(parts: Parts, arrays: Arrays, place: str = "") -> dict[str, Any]:
    """The JSON of an object's parts; its arrays are collected under ``place``."""
    for name, array in parts.arrays.items():
        arrays[f"{place}{name}"] = array
    return {
        "kind": parts.kind,
        "settings": dict(parts.settings),
        "arrays": {n: {"shape": list(a.shape), "dtype": str(a.dtype)} for n, a in parts.arrays.items()},
        "children": {n: to_structure(c, arrays, f"{place}{n}/") for n, c in parts.children.items()},
    }


def from_structure(
    structure: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], where: str, place: str = ""
) -> Parts:
    """The inverse of `to_structure`."""
    described = structure["arrays"]
    mine = {}
    for name in described:
        array = arrays.get(f"{place}{name}")
        if array is None:
            raise DataError(
                expected=f"the array '{place}{name}'",
                found="none",
                where=where,
                remedy="copy the files again from where they were saved",
            )
        if isinstance(described, Mapping):
            wanted, shape = described[name]["dtype"], described[name]["shape"]
            dtype: Any = None
            with suppress(TypeError, ValueError):
                dtype = np.dtype(wanted)
            if dtype != array.dtype or list(array.shape) != shape:
                raise DataError(
                    expected=f"{wanted} of shape {shape}"[:120],
                    found=f"{array.dtype} of shape {list(array.shape)}",
                    where=f"array '{place}{name}' of {where}",
                    remedy="copy the files again from where they were saved",
                )
        mine[name] = array
    return Parts(
        kind=structure["kind"],
        settings=structure["settings"],
        arrays=mine,
        children={
            n: from_structure(c, arrays, where, f"{place}{n}/") for n, c in structure["children"].items()
        },
    )


def structure_digest(structure: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """sha256 over the canonical JSON of the structure and the contents of the arrays."""
    return digest(arrays, json.dumps(structure, sort_keys=True).encode())
