"""A bundle: a folder with ``manifest.json`` and one file of arrays, with a checksum over everything.

    {"format": "shpi-policy", "version": 2, "shpi": "0.1.0", …,
     "arrays": "arrays-0123456789abcdef.npz",   the file beside the manifest, named after its contents
     "bytes": 1024,                             of all arrays: a file that claims more is not unpacked
     "sha256": …,                               of the structure and the contents of the arrays
     "checksum": …}                             of the whole manifest, and so of ``sha256`` and the arrays

The manifest decides which arrays count, so replacing that one file replaces the bundle in one step, on every
file system. Version 1 had no checksum, and its arrays were always in ``arrays.npz``; early files of version 2
lack ``bytes``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shpi.errors import ConfigError, DataError
from shpi.files.atomic import (
    already_there,
    flush_folder,
    locked,
    new_file,
    new_folder,
    sweep,
    sweep_folder,
    writing,
)
from shpi.files.npz import Arrays, read_npz, write_npz
from shpi.files.reading import read_json
from shpi.files.schema import Record, check, whole

MANIFEST = "manifest.json"
FIRST_ARRAYS = "arrays.npz"  # file of the arrays in version 1
OPTIONAL = {"bytes": whole()}  # keys that a bundle of version 2 may have
_ATTEMPTS = 6  # at reading a bundle, which a writer may replace meanwhile


def save_bundle(
    target: Path, manifest: Mapping[str, Any], arrays: Arrays, *, overwrite: bool = False
) -> None:
    """Write a bundle.

    Args:
        target: the folder.
        manifest: JSON-ready, with ``format``, ``version`` and ``sha256``; the other keys are added.
        arrays: the arrays, by name.
        overwrite: replace a bundle of the same format that is already there.
    """
    name = f"arrays-{manifest['sha256'][:16]}.npz"
    unsealed = {**manifest, "arrays": name, "bytes": sum(array.nbytes for array in arrays.values())}
    to_json(unsealed)  # raises on values that JSON cannot hold
    text = to_json(unsealed | {"checksum": checksum(unsealed)})
    if not target.exists():
        try:
            with new_folder(target) as draft:
                _write(draft, text, name, arrays)
            return
        except ConfigError:  # another process was faster
            if not overwrite:
                raise
    _require_replaceable(target, str(manifest["format"]), overwrite)
    with writing(target), locked(target):
        sweep(target)
        sweep_folder(target)  # including drafts of arrays under other names
        _write(target, text, name, arrays)
        for place in target.glob("arrays*.npz"):
            if place.name != name:
                place.unlink(missing_ok=True)
        flush_folder(target)


def load_manifest(folder: Path, what: str, fmt: str, schemas: Mapping[int, Record]) -> dict[str, Any]:
    """The manifest of a bundle, after its schema and its checksum were checked.

    Args:
        folder: the bundle.
        what: kind of object for messages, ``policy`` or ``world``.
        fmt: the value of its key ``format``.
        schemas: schema of each version that can be read.
    """
    place = folder / MANIFEST
    try:
        manifest = read_json(place)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            expected=f"a {what} folder with a {MANIFEST}",
            found="none",
            where=str(folder),
            remedy=f"give the folder of a saved {what}",
        ) from None
    if not isinstance(manifest, dict) or manifest.get("format") != fmt:
        raise DataError(
            expected=f"a manifest of format '{fmt}'",
            found="another kind of file",
            where=str(place),
            remedy=f"give the folder of a saved {what}",
        )
    version = manifest.get("version")
    if type(version) is not int or version not in schemas:
        raise DataError(
            expected=f"version {' or '.join(map(str, schemas))} of the {what} format",
            found=f"version {version!r}"[:80],
            where=str(place),
            remedy="load it with the version of shpi that wrote it",
        )
    check(manifest, schemas[version], str(place))
    if version > 1 and checksum(manifest) != manifest["checksum"]:
        raise changed(folder)
    return manifest


def load_bundle(
    folder: Path, what: str, fmt: str, schemas: Mapping[int, Record]
) -> tuple[dict[str, Any], Arrays]:
    """The manifest and the arrays of one bundle, consistent even if it is replaced meanwhile."""
    manifest = load_manifest(folder, what, fmt, schemas)
    for attempts_left in reversed(range(_ATTEMPTS)):
        name = manifest.get("arrays", FIRST_ARRAYS) if manifest["version"] > 1 else FIRST_ARRAYS
        if Path(name).name != name or "\0" in name:
            raise changed(folder)
        try:
            arrays = read_npz(folder / name, manifest.get("bytes"))
            break
        except (FileNotFoundError, NotADirectoryError):
            before, manifest = manifest, load_manifest(folder, what, fmt, schemas)
            if manifest == before or not attempts_left:
                raise MissingArraysError(
                    expected=f"the file {name} beside the manifest",
                    found="none",
                    where=str(folder),
                    remedy="copy the folder again from where it was saved",
                ) from None
    if manifest["version"] == 1:
        # Version 0.1 passed allow_pickle to numpy; numpy 2.0 and 2.1 stored the flag as one more array.
        arrays.pop("allow_pickle", None)
    return manifest, arrays


class MissingArraysError(DataError):
    """The manifest names a file of arrays that does not exist."""


def changed(folder: Path) -> DataError:
    """The error for contents that do not agree with their checksum."""
    return DataError(
        expected="contents that agree with the checksum in the manifest",
        found="different ones: the files were changed or damaged after they were written",
        where=str(folder),
        remedy="copy the folder again from where it was saved",
    )


def checksum(manifest: Mapping[str, Any]) -> str:
    """sha256 of the canonical JSON of a manifest without its own checksum."""
    rest = {key: value for key, value in manifest.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def to_json(content: Mapping[str, Any]) -> str:
    """JSON as it is written to disk; values that JSON cannot hold are an error."""
    try:
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            expected="JSON-ready notes and settings",
            found=str(error),
            remedy="keep text, finite numbers, lists and objects in them",
        ) from None
    return text


def _write(folder: Path, text: str, name: str, arrays: Arrays) -> None:
    with new_file(folder / name) as file:
        write_npz(file, arrays)
    with new_file(folder / MANIFEST) as file:
        file.write(text.encode())


def _require_replaceable(target: Path, fmt: str, overwrite: bool) -> None:
    if not overwrite:
        raise already_there(target)
    manifest = None
    with contextlib.suppress(OSError, DataError):
        manifest = read_json(target / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != fmt:
        raise ConfigError(
            expected="a path that does not exist yet",
            found=f"'{target}'",
            remedy=f"choose another path: only a folder of format '{fmt}' is ever overwritten",
        )
