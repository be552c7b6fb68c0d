"""The manifest of a folder of shards: what the folder holds, and checks that it is complete."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shpi.data._log.ledger import Ledger
from shpi.data.canonical import read_header
from shpi.data.logged import LoggedData
from shpi.errors import DataError
from shpi.files.atomic import write_text
from shpi.files.bundle import checksum, to_json
from shpi.files.described import LEDGER
from shpi.files.remote import Place, Remote
from shpi.files.schema import Record, check, whole
from shpi.files.seal import read_seal
from shpi.protocols import Int64Array

MANIFEST = "manifest.json"
VERSION = 4  # of the manifest's format
_FIRST = {"version": int, "files": [str], "ledger": LEDGER, "rows": whole()}
_SECOND = {**_FIRST, "checksums": [str], "checksum": str}
_THIRD = {
    **_SECOND,
    "users": whole(),
    "action_counts": [whole()],  # decisions per action, in the order of the log's actions
    "reward_range": (None, [float]),  # smallest and largest observed reward
    "hash": (None, str),  # rule that assigned users to shards; null: as they were given
    "shpi": str,  # version that wrote the folder
}
_FOURTH = {
    **_THIRD,
    "shards": [Record({"rows": whole(), "users": whole(), "bytes": whole(), "sha256": str})],  # as "files"
}
_SCHEMAS = {1: Record(_FIRST), 2: Record(_SECOND), 3: Record(_THIRD), 4: Record(_FOURTH)}


@dataclass(frozen=True, kw_only=True, eq=False)
class ShardCounts:
    """The counts of one shard that enter the manifest."""

    ledger: Ledger
    users: int
    actions: Int64Array  # [A] decisions per action
    rewards: tuple[float, float] | None  # smallest and largest; None: none observed

    @classmethod
    def of(cls, logs: LoggedData) -> ShardCounts:
        """Count one shard."""
        rewards = logs.rewards
        if rewards is not None and logs.reward_observed is not None:
            rewards = rewards[logs.reward_observed]
        return cls(
            ledger=logs.ledger,
            users=logs.n_users,
            actions=np.bincount(logs.actions, minlength=logs.n_actions).astype(np.int64),
            rewards=None
            if rewards is None or not len(rewards)
            else (float(rewards.min()), float(rewards.max())),
        )


def write_manifest(
    draft: Path, files: list[str], counts: list[ShardCounts], *, hash_rule: str | None
) -> None:
    """Write the manifest of the shards into the unfinished folder."""
    from shpi import __version__

    ledger = Ledger.sum(shard.ledger for shard in counts)
    ranges = [shard.rewards for shard in counts if shard.rewards is not None]
    manifest = {
        "version": VERSION,
        "files": files,
        "checksums": [read_seal(draft / name) for name in files],
        "ledger": ledger.to_json(),
        "rows": ledger.rows_used,
        "users": sum(shard.users for shard in counts),
        "action_counts": np.sum([shard.actions for shard in counts], axis=0).tolist(),
        "reward_range": [min(low for low, _ in ranges), max(high for _, high in ranges)] if ranges else None,
        "hash": hash_rule,
        "shpi": __version__,
        "shards": [
            {
                "rows": shard.ledger.rows_used,
                "users": shard.users,
                "bytes": (draft / name).stat().st_size,
                "sha256": file_digest(draft / name),
            }
            for name, shard in zip(files, counts, strict=True)
        ],
    }
    write_text(draft / MANIFEST, to_json(manifest | {"checksum": checksum(manifest)}))


def file_digest(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checked_files(manifest: Any, place: Place) -> tuple[Place, ...]:
    """Check a manifest and return its shards in order: complete, none twice, none outside the folder."""
    version = manifest.get("version") if isinstance(manifest, dict) else None
    if type(version) is not int or version not in _SCHEMAS:
        raise DataError(
            expected=f"version {' or '.join(map(str, _SCHEMAS))} of a folder of shards",
            found=f"version {version!r}"[:80],
            where=str(place / MANIFEST),
            remedy="prepare the shards again with prepare_shards, or upgrade shpi",
        )
    check(manifest, _SCHEMAS[version], str(place / MANIFEST))
    names = manifest["files"]
    odd = [name for name in names if not re.fullmatch(r"shard-[0-9]{5,}\.parquet", name)]
    if odd or names != sorted(set(names)):
        raise _not_whole(f"{odd[0]!r}"[:80] if odd else "a shard twice or out of order", place)
    if version > 1 and manifest["checksum"] != checksum(manifest):
        raise _not_whole("a manifest that was changed", place)
    if version > 1 and len(manifest["checksums"]) != len(names):
        raise _not_whole("a manifest that was changed", place)
    if version > 3:
        _check_shards(manifest, place)
    if isinstance(place, Remote):
        return _remote_files(manifest, place)
    absent = [name for name in names if not (place / name).is_file()]
    if absent:
        raise _not_whole(f"{absent[0]} missing", place)
    _check_headers(manifest, place)
    return tuple(place / name for name in names)


def _check_shards(manifest: dict[str, Any], place: Place) -> None:
    """Check the list of shards against the totals and against the sizes of the files."""
    shards, names = manifest["shards"], manifest["files"]
    if len(shards) != len(names) or sum(shard["rows"] for shard in shards) != manifest["rows"]:
        raise _not_whole("a manifest that was changed", place)
    sizes = _sizes(place, names)
    for name, shard in zip(names, shards, strict=True):
        if name not in sizes:
            raise _not_whole(f"{name} missing", place)
        if sizes[name] < shard["bytes"]:
            cut = f"{name} cut short: {sizes[name]:,} of {shard['bytes']:,} bytes"
            raise _not_whole(cut, place)
        if sizes[name] > shard["bytes"]:
            raise _not_whole(f"{name} changed, or from another log", place)


def _sizes(place: Place, names: list[str]) -> dict[str, int]:
    if isinstance(place, Remote):
        return place.sizes()
    return {name: (place / name).stat().st_size for name in names if (place / name).is_file()}


def _remote_files(manifest: dict[str, Any], place: Remote) -> tuple[Remote, ...]:
    """The shards at a remote place, with the digests that are checked when they are fetched."""
    if "shards" not in manifest:
        raise DataError(
            expected="a folder of shards of version 4 at a remote place",
            found=f"version {manifest['version']}",
            where=str(place),
            remedy="prepare the shards again with this version of shpi",
        )
    pairs = zip(manifest["files"], manifest["shards"], strict=True)
    return tuple(Remote((place / name).uri, sha256=shard["sha256"]) for name, shard in pairs)


def _check_headers(manifest: dict[str, Any], place: Path) -> None:
    """Check that the headers of the shards agree with the manifest."""
    names, version = manifest["files"], manifest["version"]
    headers = [read_header(place / name, verify=False) for name in names]
    rows = sum(header["ledger"]["rows_used"] for header in headers)
    if rows != manifest["rows"] or rows != manifest["ledger"]["rows_used"]:
        raise _not_whole(f"{rows:,} rows in the shards and {manifest['rows']:,} in the manifest", place)
    if version > 2 and (sum(manifest["action_counts"]) != rows):
        raise _not_whole(f"{sum(manifest['action_counts']):,} decisions by action for {rows:,} rows", place)
    for name, header in zip(names, headers, strict=True):
        if any(header[key] != headers[0][key] for key in ("schema", "actions")):
            raise _not_whole(f"{name} of another log than {names[0]}", place)
    if version > 1:
        for name, known in zip(names, manifest["checksums"], strict=True):
            if read_seal(place / name) != known:
                raise _not_whole(f"{name} changed, or from another log", place)


def _not_whole(found: str, place: Place) -> DataError:
    return DataError(
        expected="every shard of the manifest, once and in order",
        found=found,
        where=str(place),
        remedy="copy the folder again, or prepare the shards again with prepare_shards",
    )
