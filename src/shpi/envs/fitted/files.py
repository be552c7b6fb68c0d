"""Save and load fitted worlds: a bundle (`shpi.files.bundle`) of a manifest and arrays; no pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shpi.data.actions import ActionSpace
from shpi.data.schema import ContextSchema
from shpi.envs.fitted.simulator import FittedWorld
from shpi.errors import DataError, ShpiError
from shpi.features.parts import put_together, take_apart
from shpi.features.structure import NODE, from_structure, to_structure
from shpi.files.atomic import already_there
from shpi.files.bundle import OPTIONAL, changed, load_bundle, save_bundle
from shpi.files.described import ACTION_SPACE, CONTEXT_SCHEMA
from shpi.files.npz import Arrays, digest
from shpi.files.schema import REMEDY, Record, one_of, whole

FORMAT, VERSION = "shpi-world", 2
_SETTINGS = {
    "name": str,
    "horizon": whole(1),
    "observed": one_of("log", "user"),
    "window": (None, float),
    "link": float,
    "assumed": float,
    "assumed_on": (None, str),
    "member": (None, whole(), one_of("mix")),
    "reward": str,
    "notes": [str],
}
_ARRAYS = {"starts": 2, "edges": 1}  # name: number of axes
_CHILDREN = ("models", "moves")
_FIRST = {
    "format": str,
    "version": int,
    "shpi": str,
    "settings": Record(_SETTINGS),
    "schema": CONTEXT_SCHEMA,
    "actions": ACTION_SPACE,
    "parts": Record(dict.fromkeys(_CHILDREN, NODE)),
    "sha256": str,
}
SCHEMAS = {1: Record(_FIRST), 2: Record({**_FIRST, "arrays": str, "checksum": str}, OPTIONAL)}


def save_world(world: FittedWorld, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a world to the folder ``path``: everything or nothing."""
    from shpi import __version__

    target = Path(path)
    if target.exists() and not overwrite:
        raise already_there(target)
    arrays: Arrays = {name: getattr(world, name) for name in _ARRAYS}
    parts = {name: to_structure(take_apart(getattr(world, name)), arrays, f"{name}/") for name in _CHILDREN}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "shpi": __version__,
        "settings": {name: getattr(world, name) for name in _SETTINGS},
        "schema": world.schema.to_json(),
        "actions": world.action_space.to_json(),
        "parts": parts,
        "sha256": digest(arrays),
    }
    save_bundle(target, manifest, arrays, overwrite=overwrite)
    return target


def load_world(path: str | Path) -> FittedWorld:
    """Open a folder that `save_world` wrote."""
    folder = Path(path)
    manifest, arrays = load_bundle(folder, "world", FORMAT, SCHEMAS)
    if digest(arrays) != manifest["sha256"]:
        raise changed(folder)
    parts = {
        name: put_together(from_structure(manifest["parts"][name], arrays, str(folder), f"{name}/"))
        for name in _CHILDREN
    }
    return _assemble(manifest, arrays, parts, folder)


def _assemble(
    manifest: Mapping[str, Any], arrays: Arrays, parts: Mapping[str, Any], folder: Path
) -> FittedWorld:
    for name, axes in _ARRAYS.items():
        if name not in arrays or arrays[name].ndim != axes or arrays[name].dtype.kind != "f":
            raise DataError(
                expected=f"the array '{name}' with {axes} axes",
                found="none or another",
                where=str(folder),
                remedy=REMEDY,
            )
    try:
        fields: dict[str, Any] = {**manifest["settings"], **parts}
        fields |= {name: arrays[name] for name in _ARRAYS}
        world = FittedWorld(
            **fields | {"notes": tuple(fields["notes"])},
            schema=ContextSchema.from_json(manifest["schema"]),
            action_space=ActionSpace.from_json(manifest["actions"]),
        )
        _try_out(world)
    except ShpiError as error:
        raise DataError(
            expected=error.expected, found=error.found, where=str(folder), remedy=error.remedy or REMEDY
        ) from None
    except Exception as error:  # the file may come from anyone
        raise DataError(
            expected="a world whose parts fit together",
            found=f"{type(error).__name__}: {error}"[:200],
            where=str(folder),
            remedy=REMEDY,
        ) from None
    return world


def _try_out(world: FittedWorld) -> None:
    """Simulate one decision of a copy, so that parts that do not fit together are noticed now."""
    if world.starts.shape[1] != world.schema.width:
        raise ValueError(f"first contexts of width {world.starts.shape[1]}, not {world.schema.width}")
    copy = replace(world)
    copy.reset(1, 0)
    copy.step(np.zeros(1, dtype=np.int64))
