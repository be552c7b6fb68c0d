"""Save and load policies: a folder with ``manifest.json`` and ``arrays.npz``; no pickle.

{
  "format": "shpi-policy", "version": 1, "shpi": "0.1.0",
  "n_actions": 10, "width": 2,
  "policy": {"kind": "policies/greedy", "settings": {}, "arrays": {}, "children": {"scorer": …}},
  "sha256": "…",           of the policy's structure and the contents of its arrays
  "schema": [...] or null, "actions": {...} or null,      of the log that it was learned from
  "training_users": [...]  salted hashes of the users that it was learned from; the hashes are arrays
  "notes": {}              whatever the writer wants to keep beside it
}
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shpi.errors import ConfigError, DataError
from shpi.features.parts import Parts, put_together, take_apart
from shpi.policies.items import Items, with_items
from shpi.policies.training_users import users_from_file, users_to_file
from shpi.protocols import Policy

if TYPE_CHECKING:  # the readers of tables are slow to import, and rarely needed where a policy acts
    from shpi.data.actions import ActionSpace
    from shpi.data.schema import ContextSchema

FORMAT, VERSION = "shpi-policy", 1
MANIFEST, ARRAYS = "manifest.json", "arrays.npz"

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class PolicyFile:
    """What a policy folder says about its policy."""

    kind: str
    n_actions: int
    width: int | None
    sha256: str
    schema: ContextSchema | None
    actions: ActionSpace | None
    notes: Mapping[str, Any]
    shpi: str


def save_policy(
    policy: Policy,
    path: str | Path,
    *,
    schema: ContextSchema | None = None,
    actions: ActionSpace | None = None,
    notes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a policy to the folder ``path``: everything or nothing.

    Args:
        policy: made of shpi's own parts (or of classes marked with ``saveable``).
        path: the folder to make.
        schema: of the contexts, kept in the manifest for whoever loads the policy; None takes what the
            policy knows itself (`shpi.policies.with_items`).
        actions: the action ids behind the numbers 0..A-1, kept likewise.
        notes: further JSON-ready facts.
        overwrite: replace a policy folder that is already there.
    """
    from shpi import __version__

    target = Path(path)
    if target.exists() and not (overwrite and (target / MANIFEST).is_file()):
        raise ConfigError(
            expected="a path that does not exist yet",
            found=f"'{target}'",
            remedy="choose another path" if not overwrite else "only a policy folder is ever overwritten",
        )
    arrays: Arrays = {}
    structure = _structure(take_apart(policy), "", arrays)
    items = getattr(policy, "items", None) or Items()
    schema, actions = schema or items.schema, actions or items.actions
    trained_on, hashes = users_to_file(policy)
    arrays |= hashes
    if actions is not None and len(actions) != policy.n_actions:
        raise ConfigError(expected=f"{policy.n_actions} action ids", found=str(len(actions)))
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "shpi": __version__,
        "n_actions": policy.n_actions,
        "width": getattr(policy, "width", None),
        "policy": structure,
        "sha256": _digest(structure, arrays),
        "schema": None if schema is None else schema.to_json(),
        "actions": None if actions is None else actions.to_json(),
        "notes": dict(notes or {}),
    }
    if trained_on:
        manifest["training_users"] = trained_on
    text = _to_json(manifest)
    write_folder(target, text, arrays)
    return target


def load_policy(path: str | Path) -> Policy:
    """The policy in a folder that ``save`` wrote, after checking that nothing has changed in it.

    It knows the context columns and item ids that were saved with it: ``policy.act(table, seed=7)``.
    """
    folder = Path(path)
    manifest = _read_manifest(folder)
    arrays = _read_arrays(folder / ARRAYS)
    if _digest(manifest["policy"], arrays) != manifest["sha256"]:
        raise DataError(
            expected="contents that agree with the checksum in the manifest",
            found="different ones: the files were changed or damaged after they were written",
            where=str(folder),
            remedy="copy the folder again from where it was saved",
        )
    try:
        policy = put_together(_parts(manifest["policy"], "", arrays))
    except KeyError as error:
        raise DataError(expected=f"an entry {error}", found="none", where=str(folder)) from None
    if not isinstance(policy, Policy):
        raise DataError(expected="a policy", found=f"a {type(policy).__name__}", where=str(folder))
    users_from_file(policy, manifest.get("training_users"), arrays)
    return with_items(policy, schema=manifest.get("schema"), actions=manifest.get("actions"))


def read_policy_file(path: str | Path) -> PolicyFile:
    """What the manifest says, without loading the arrays."""
    from shpi.data.actions import ActionSpace
    from shpi.data.schema import ContextSchema

    manifest = _read_manifest(Path(path))
    schema, actions = manifest.get("schema"), manifest.get("actions")
    return PolicyFile(
        kind=manifest["policy"]["kind"],
        n_actions=manifest["n_actions"],
        width=manifest.get("width"),
        sha256=manifest["sha256"],
        schema=None if schema is None else ContextSchema.from_json(schema),
        actions=None if actions is None else ActionSpace.from_json(actions),
        notes=manifest.get("notes", {}),
        shpi=manifest.get("shpi", "unknown"),
    )


# ---------------------------------------------------------------------- structure


def _structure(parts: Parts, place: str, arrays: Arrays) -> dict[str, Any]:
    """The JSON of an object's parts; its arrays are collected under ``place``."""
    for name, array in parts.arrays.items():
        arrays[f"{place}{name}"] = array
    return {
        "kind": parts.kind,
        "settings": dict(parts.settings),
        "arrays": {n: {"shape": list(a.shape), "dtype": str(a.dtype)} for n, a in parts.arrays.items()},
        "children": {n: _structure(c, f"{place}{n}/", arrays) for n, c in parts.children.items()},
    }


def _parts(structure: Mapping[str, Any], place: str, arrays: Arrays) -> Parts:
    return Parts(
        kind=structure["kind"],
        settings=structure["settings"],
        arrays={name: arrays[f"{place}{name}"] for name in structure["arrays"]},
        children={n: _parts(c, f"{place}{n}/", arrays) for n, c in structure["children"].items()},
    )


def _digest(structure: Mapping[str, Any], arrays: Arrays) -> str:
    """sha256 over the canonical JSON of the structure and over every array's name, type, shape and bytes."""
    digest = hashlib.sha256(json.dumps(structure, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


# ---------------------------------------------------------------------- files


def _to_json(manifest: Mapping[str, Any]) -> str:
    try:
        return json.dumps(manifest, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ConfigError(expected="JSON-ready notes and settings", found=str(error)) from None


def write_folder(target: Path, text: str, arrays: Arrays) -> None:
    """Write beside the target under a temporary name, then rename; a failure leaves nothing behind."""
    target.parent.mkdir(parents=True, exist_ok=True)
    mark = secrets.token_hex(4)
    new, old = (target.with_name(f".{target.name}.{word}-{mark}") for word in ("new", "old"))
    new.mkdir()
    try:
        with (new / ARRAYS).open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        (new / MANIFEST).write_text(text, encoding="utf-8")
        if target.exists():
            target.replace(old)
        new.replace(target)
    except BaseException:
        if old.exists() and not target.exists():
            old.replace(target)
        raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)


def _read_manifest(folder: Path) -> dict[str, Any]:
    place = folder / MANIFEST
    try:
        manifest = json.loads(place.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            expected=f"a policy folder with a {MANIFEST}", found="none", where=str(folder)
        ) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(expected="a manifest in JSON", found=str(error), where=str(place)) from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(
            expected=f"a manifest of format '{FORMAT}'", found="another kind of file", where=str(place)
        )
    if manifest.get("version") != VERSION:
        raise DataError(
            expected=f"version {VERSION} of the policy format",
            found=f"version {manifest.get('version')}",
            where=str(place),
            remedy="load it with the version of shpi that wrote it",
        )
    absent = {"policy", "sha256", "n_actions"} - manifest.keys()
    if absent:
        raise DataError(expected="a complete manifest", found=f"none of {sorted(absent)}", where=str(place))
    return manifest


def _read_arrays(place: Path) -> Arrays:
    try:
        with np.load(place, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise DataError(expected=f"the file {ARRAYS} beside the manifest", found="none") from None
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, KeyError) as error:
        raise DataError(expected="readable arrays", found=str(error), where=str(place)) from None
