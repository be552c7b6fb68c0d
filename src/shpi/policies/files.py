"""Save and load policies: a bundle (`shpi.files.bundle`) of a manifest and arrays; no pickle.

{
  "format": "shpi-policy", "version": 2, "shpi": "0.1.0",
  "n_actions": 10, "width": 2,
  "policy": {"kind": "policies/greedy", "settings": {}, "arrays": {}, "children": {"scorer": …}},
  "schema": [...] or null, "actions": {...} or null,      of the log that it was learned from
  "training_users": [...]  salted hashes of the users that it was learned from; the hashes are arrays
  "notes": {},             whatever the writer wants to keep beside it
  "arrays": "arrays-….npz", "bytes": 1024,
  "sha256": "…",           of the policy's structure and the contents of its arrays: which policy it is
  "checksum": "…"          of the whole manifest: whether anything was changed
}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shpi.errors import ConfigError, DataError
from shpi.features.parts import put_together, take_apart
from shpi.features.structure import NODE, from_structure, structure_digest, to_structure
from shpi.files.atomic import already_there
from shpi.files.bundle import MANIFEST, OPTIONAL, changed, load_bundle, load_manifest, save_bundle
from shpi.files.described import ACTION_SPACE, CONTEXT_SCHEMA
from shpi.files.npz import Arrays
from shpi.files.schema import REMEDY, Record, whole
from shpi.policies.items import Items, with_items
from shpi.policies.training_users import users_from_file, users_to_file
from shpi.protocols import Policy

if TYPE_CHECKING:  # the readers of tables are slow to import, and rarely needed where a policy acts
    from shpi.data.actions import ActionSpace
    from shpi.data.schema import ContextSchema

FORMAT, VERSION = "shpi-policy", 2

_FIRST = {
    "format": str,
    "version": int,
    "n_actions": whole(1),
    "policy": NODE,
    "sha256": str,
}
_BESIDE = {
    "shpi": str,
    "width": (None, whole()),
    "schema": (None, CONTEXT_SCHEMA),
    "actions": (None, ACTION_SPACE),
    "notes": dict,
}
_USERS = {"training_users": [Record({"users": whole(), "threshold": str, "numbered": bool, "salt": str})]}
SCHEMAS = {
    1: Record(_FIRST, {**_BESIDE, **_USERS}),
    2: Record({**_FIRST, **_BESIDE, "arrays": str, "checksum": str}, {**_USERS, **OPTIONAL}),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class PolicyFile:
    """The manifest of a policy folder."""

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
    """Write a policy to the folder ``path``, atomically.

    Args:
        policy: made of shpi's own parts (or of classes marked with ``saveable``).
        path: the folder to create.
        schema: schema of the contexts, kept in the manifest for whoever loads the policy; None takes what the
            policy knows itself (`shpi.policies.with_items`).
        actions: the action ids behind the numbers 0..A-1, kept likewise.
        notes: further JSON-ready facts.
        overwrite: replace a policy folder that is already there.
    """
    from shpi import __version__

    target = Path(path)
    if target.exists() and not overwrite:
        raise already_there(target)
    arrays: Arrays = {}
    structure = to_structure(take_apart(policy), arrays)
    items = getattr(policy, "items", None) or Items()
    schema, actions = schema or items.schema, actions or items.actions
    trained_on, hashes = users_to_file(policy)
    arrays |= hashes
    if actions is not None and len(actions) != policy.n_actions:
        raise ConfigError(
            expected=f"{policy.n_actions} action ids",
            found=str(len(actions)),
            remedy="give the actions of the log that the policy was learned from",
        )
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "shpi": __version__,
        "n_actions": policy.n_actions,
        "width": getattr(policy, "width", None),
        "policy": structure,
        "sha256": structure_digest(structure, arrays),
        "schema": None if schema is None else schema.to_json(),
        "actions": None if actions is None else actions.to_json(),
        "notes": dict(notes or {}),
    }
    if trained_on:
        manifest["training_users"] = trained_on
    save_bundle(target, manifest, arrays, overwrite=overwrite)
    return target


def load_policy(path: str | Path) -> Policy:
    """The policy in a folder that ``save`` wrote, after checking that nothing has changed in it.

    It knows the context columns and item ids that were saved with it: ``policy.act(table, seed=7)``.
    """
    folder = Path(path)
    manifest, arrays = load_bundle(folder, "policy", FORMAT, SCHEMAS)
    if structure_digest(manifest["policy"], arrays) != manifest["sha256"]:
        raise changed(folder)
    policy = put_together(from_structure(manifest["policy"], arrays, str(folder)))
    if not isinstance(policy, Policy):
        raise DataError(
            expected="a policy", found=f"a {type(policy).__name__}", where=str(folder), remedy=REMEDY
        )
    users_from_file(policy, manifest.get("training_users"), arrays)
    problem, width = None, manifest.get("width")
    if policy.n_actions != manifest["n_actions"]:
        problem = f"{policy.n_actions} actions where the manifest says {manifest['n_actions']}"
    elif width is not None and not _needs_an_extra(manifest["policy"]):
        try:  # one trial decision, so that incompatible parts fail here, not when serving
            probs = policy.action_probs(np.zeros((1, width)))
            if probs.shape != (1, policy.n_actions) or not abs(float(probs.sum()) - 1) < 1e-6:
                problem = f"probabilities of shape {probs.shape} that sum to {float(probs.sum()):.6g}"
        except Exception as error:  # parts of any kind, put together by anyone
            problem = f"{type(error).__name__}: {error}"[:200]
    if problem is not None:
        raise DataError(
            expected="a policy whose parts fit together", found=problem, where=str(folder), remedy=REMEDY
        )
    return with_items(policy, schema=manifest.get("schema"), actions=manifest.get("actions"))


def read_policy_file(path: str | Path) -> PolicyFile:
    """Read the manifest, without loading the arrays."""
    from shpi.data.actions import ActionSpace
    from shpi.data.schema import ContextSchema

    folder = Path(path)
    manifest = load_manifest(folder, "policy", FORMAT, SCHEMAS)
    schema, actions = manifest.get("schema"), manifest.get("actions")
    described = PolicyFile(
        kind=manifest["policy"]["kind"],
        n_actions=manifest["n_actions"],
        width=manifest.get("width"),
        sha256=manifest["sha256"],
        schema=None if schema is None else ContextSchema.from_json(schema),
        actions=None if actions is None else ActionSpace.from_json(actions),
        notes=manifest.get("notes", {}),
        shpi=manifest.get("shpi", "unknown"),
    )
    if described.actions is not None and len(described.actions) != described.n_actions:
        raise DataError(
            expected=f"{described.n_actions} action ids",
            found=str(len(described.actions)),
            where=str(folder / MANIFEST),
            remedy=REMEDY,
        )
    return described


def _needs_an_extra(structure: Mapping[str, Any]) -> bool:
    """Whether acting imports a heavy package, which loading must not do; its model is checked by itself."""
    return structure["kind"] == "oracles/gbdt-scorer" or any(
        _needs_an_extra(child) for child in structure["children"].values()
    )
