"""Save and load fitted worlds: a folder with ``manifest.json`` and ``arrays.npz``; no pickle."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shpi.data.actions import ActionSpace
from shpi.data.schema import ContextSchema
from shpi.envs.world_simulator import FittedWorld
from shpi.errors import ConfigError, DataError
from shpi.features.parts import Parts, put_together, take_apart
from shpi.policies.files import ARRAYS, MANIFEST, write_folder

FORMAT, VERSION = "shpi-world", 1
_PLAIN = (
    "name",
    "horizon",
    "observed",
    "window",
    "link",
    "assumed",
    "assumed_on",
    "member",
    "reward",
    "notes",
)
_ARRAYS = ("starts", "edges")
_CHILDREN = ("models", "moves")

Arrays = dict[str, NDArray[Any]]


def save_world(world: FittedWorld, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a world to the folder ``path``: everything or nothing."""
    from shpi import __version__

    target = Path(path)
    if target.exists() and not (overwrite and (target / MANIFEST).is_file()):
        raise ConfigError(
            expected="a new folder to write to",
            found=f"'{target}', which exists",
            remedy="choose another name, or pass overwrite=True to replace a saved world",
        )
    arrays: Arrays = {name: getattr(world, name) for name in _ARRAYS}
    children = {name: _structure(take_apart(getattr(world, name)), f"{name}/", arrays) for name in _CHILDREN}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "shpi": __version__,
        "settings": {name: getattr(world, name) for name in _PLAIN},
        "schema": world.schema.to_json(),
        "actions": world.action_space.to_json(),
        "parts": children,
        "sha256": _digest(arrays),
    }
    write_folder(target, json.dumps(manifest, indent=1, allow_nan=False) + "\n", arrays)
    return target


def load_world(path: str | Path) -> FittedWorld:
    """Open a folder that `save_world` wrote."""
    folder = Path(path)
    manifest = _read_manifest(folder)
    arrays = _read_arrays(folder / ARRAYS)
    if _digest(arrays) != manifest["sha256"]:
        raise DataError(
            expected="the arrays that the manifest describes", found="others", where=str(folder / ARRAYS)
        )
    settings: dict[str, Any] = manifest["settings"] | {"notes": tuple(manifest["settings"]["notes"])}
    settings |= {name: arrays[name] for name in _ARRAYS}
    parts = {name: put_together(_parts(manifest["parts"][name], f"{name}/", arrays)) for name in _CHILDREN}
    return FittedWorld(
        **settings,
        **parts,
        schema=ContextSchema.from_json(manifest["schema"]),
        action_space=ActionSpace.from_json(manifest["actions"]),
    )


def _structure(parts: Parts, place: str, arrays: Arrays) -> dict[str, Any]:
    for name, array in parts.arrays.items():
        arrays[f"{place}{name}"] = array
    return {
        "kind": parts.kind,
        "settings": dict(parts.settings),
        "arrays": list(parts.arrays),
        "children": {n: _structure(c, f"{place}{n}/", arrays) for n, c in parts.children.items()},
    }


def _parts(structure: Mapping[str, Any], place: str, arrays: Arrays) -> Parts:
    return Parts(
        kind=structure["kind"],
        settings=structure["settings"],
        arrays={name: arrays[f"{place}{name}"] for name in structure["arrays"]},
        children={n: _parts(c, f"{place}{n}/", arrays) for n, c in structure["children"].items()},
    )


def _digest(arrays: Arrays) -> str:
    """sha256 over every array's name, type, shape and bytes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _read_manifest(folder: Path) -> dict[str, Any]:
    place = folder / MANIFEST
    try:
        manifest = json.loads(place.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(expected=f"a folder with a {MANIFEST}", found="none", where=str(folder)) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(expected="a manifest in JSON", found=str(error), where=str(place)) from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(expected="a manifest of a saved world", found="another file", where=str(place))
    if manifest.get("version") != VERSION:
        raise DataError(
            expected=f"version {VERSION} of the format",
            found=f"version {manifest.get('version')}",
            where=str(place),
            remedy="load it with the version of shpi that wrote it",
        )
    return manifest


def _read_arrays(place: Path) -> Arrays:
    try:
        with np.load(place, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise DataError(expected=f"the file {ARRAYS} beside the manifest", found="none") from None
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, KeyError) as error:
        raise DataError(expected="readable arrays", found=str(error), where=str(place)) from None
