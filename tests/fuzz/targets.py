"""What is attacked, and what must hold: an error of shpi with a remedy, or a result that nothing has changed.

Each target is a function of a seeded generator and a folder; it returns "refused" or "accepted", and raises
an AssertionError, or any other exception, if what must hold does not.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shpi
from shpi.cli.main import main
from shpi.data.shards import ShardedLog
from shpi.envs.fitted.simulator import FittedWorld
from shpi.features.structure import structure_digest
from shpi.files.bundle import checksum
from shpi.files.npz import digest, read_npz
from shpi.policies import load_policy, read_policy_file
from tests.compat.make import CONTEXTS, table
from tests.fuzz.attempt import attempt
from tests.fuzz.mutations import change_bytes, change_json, change_table
from tests.fuzz.small_logs import evaluate_small, fit_small

FIXTURES = Path(__file__).parent.parent / "compat" / "v0_1"
COLUMNS: dict[str, Any] = {
    "user": "uid", "time": "ts", "time_unit": "s", "action": "item", "propensity": "p", "reward": "r",
    "context": ["a", "c"], "missing": {"a": "mean"}, "session_gap": "5m", "max_categories": 8,
}  # fmt: skip


# ---------------------------------------------------------------------- policies and worlds


@cache
def policy_files() -> tuple[tuple[str, dict[str, bytes], Any, bytes], ...]:
    """Saved policies of this version: name, files, manifest, and what the policy does."""
    import tempfile

    saved = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("nested", "bandit"):
            policy = load_policy(FIXTURES / f"policy-{name}")
            described = read_policy_file(FIXTURES / f"policy-{name}")
            place = Path(folder) / name
            policy.save(place, schema=described.schema, actions=described.actions)  # type: ignore[attr-defined]
            files = {file.name: file.read_bytes() for file in place.iterdir()}
            truth = policy.action_probs(CONTEXTS).tobytes()
            saved.append((name, files, json.loads(files["manifest.json"]), truth))
    return tuple(saved)


def fresh(folder: Path, files: dict[str, bytes]) -> Path:
    shutil.rmtree(folder / "p", ignore_errors=True)
    (folder / "p").mkdir(parents=True)
    for name, data in files.items():
        (folder / "p" / name).write_bytes(data)
    return folder / "p"


def unsigned_policy(chance: random.Random, folder: Path) -> str:
    """A file of a policy is changed: noticed, or the policy and all that is said about it are the same."""
    _, files, manifest, truth = chance.choice(policy_files())
    place = fresh(folder, files)
    victim = chance.choice(sorted(files))
    if victim == "manifest.json" and chance.random() < 0.7:
        (place / victim).write_text(json.dumps(change_json(manifest, chance)))
    else:
        (place / victim).write_bytes(change_bytes(files[victim], chance))
    outcome, policy = attempt(lambda: load_policy(place))
    if policy is not None:
        assert policy.action_probs(CONTEXTS).tobytes() == truth
        changed = json.loads((place / "manifest.json").read_text())
        assert changed == manifest
    attempt(lambda: read_policy_file(place))
    return outcome


def signed_policy(chance: random.Random, folder: Path) -> str:
    """A manifest is changed and signed again: refused, or a policy that acts."""
    _, files, manifest, _ = chance.choice(policy_files())
    place = fresh(folder, files)
    arrays = read_npz(place / manifest["arrays"])
    changed = change_json(manifest, chance)
    if isinstance(changed, dict):
        with contextlib.suppress(Exception):
            changed["sha256"] = structure_digest(changed["policy"], arrays)
        with contextlib.suppress(Exception):
            changed["checksum"] = checksum(changed)
    (place / "manifest.json").write_text(json.dumps(changed))
    outcome, policy = attempt(lambda: load_policy(place))
    if policy is not None and manifest["width"] is not None:
        probs = policy.action_probs(CONTEXTS)
        assert np.allclose(probs.sum(axis=1), 1)
    attempt(lambda: read_policy_file(place))
    return outcome


@cache
def world_files() -> tuple[dict[str, bytes], Any]:
    """The saved world of version 0.1, saved again by this one."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        place = FittedWorld.load(FIXTURES / "world").save(Path(folder) / "w")
        files = {file.name: file.read_bytes() for file in place.iterdir()}
    return files, json.loads(files["manifest.json"])


def world(chance: random.Random, folder: Path) -> str:
    """A world is changed, signed again or not: refused, or one that can be simulated."""
    files, manifest = world_files()
    place = fresh(folder, files)
    signed = chance.random() < 0.5
    if signed or chance.random() < 0.5:
        changed = change_json(manifest, chance)
        if signed and isinstance(changed, dict):
            with contextlib.suppress(Exception):
                changed["sha256"] = digest(read_npz(place / manifest["arrays"]))
                changed["checksum"] = checksum(changed)
        (place / "manifest.json").write_text(json.dumps(changed))
    else:
        victim = chance.choice(sorted(files))
        (place / victim).write_bytes(change_bytes(files[victim], chance))
    outcome, loaded = attempt(lambda: FittedWorld.load(place))
    if loaded is not None:
        loaded.reset(2, 0)
        attempt(lambda: loaded.step(np.zeros(2, dtype=np.int64)))
    return outcome


# ---------------------------------------------------------------------- logs, maps, canonical files


def balanced(logs: Any) -> None:
    ledger = logs.ledger
    assert ledger.balanced(), ledger
    assert ledger.rows_used == len(logs)
    assert np.isfinite(logs.contexts).all()
    assert np.isfinite(logs.rewards).all() if logs.rewards is not None else True


def log(chance: random.Random, folder: Path) -> str:
    """A table is spoilt: refused with a remedy, or every row is accounted for."""
    frame = table()
    for _ in range(chance.choice([1, 1, 2, 3])):
        frame = change_table(frame, chance) if frame.height and frame.columns else frame
    source: Any = frame
    form = chance.choice(["memory", "parquet", "csv", "csv bytes", "parquet"])
    with contextlib.suppress(pl.exceptions.PolarsError):
        if form == "parquet":
            source = folder / "t.parquet"
            frame.write_parquet(source)
        elif form.startswith("csv"):
            source = folder / "t.csv"
            frame.write_csv(source)
            if form == "csv bytes":
                source.write_bytes(change_bytes(source.read_bytes(), chance))
    invalid = chance.choice(["error", "drop"])
    outcome, logs = attempt(lambda: shpi.LoggedData.read(source, dict(COLUMNS), invalid=invalid))
    if logs is not None:
        balanced(logs)
        if chance.random() < 0.1:
            attempt(logs.audit)
    return outcome


def column_map(chance: random.Random, folder: Path) -> str:
    """A column map is spoilt."""
    changed = change_json(COLUMNS, chance)
    if chance.random() < 0.3:
        place = folder / "map.toml"
        text = shpi.Columns(**COLUMNS).to_toml().encode()
        place.write_bytes(change_bytes(text, chance))
        changed = place
    outcome, logs = attempt(lambda: shpi.LoggedData.read(table(), changed))
    if logs is not None:
        balanced(logs)
    return outcome


@cache
def canonical_bytes() -> tuple[bytes, str]:
    logs = shpi.LoggedData.read(table(), dict(COLUMNS))
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return logs.to_parquet(Path(folder) / "l.parquet").read_bytes(), logs.fingerprint()


def canonical(chance: random.Random, folder: Path) -> str:
    """Bytes of a canonical file are changed: noticed, or it is the same log."""
    data, truth = canonical_bytes()
    place = folder / "l.parquet"
    place.write_bytes(change_bytes(data, chance))
    outcome, logs = attempt(lambda: shpi.LoggedData.read(place))
    if logs is not None:
        balanced(logs)
        assert logs.fingerprint() == truth
    return outcome


def shards(chance: random.Random, folder: Path) -> str:
    """The manifest or a file of a folder of shards is changed."""
    target = folder / "s"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(FIXTURES / "shards", target)
    victim = target / "manifest.json"
    if chance.random() < 0.8:
        victim.write_text(json.dumps(change_json(json.loads(victim.read_text()), chance)))
    else:
        victim.write_bytes(change_bytes(victim.read_bytes(), chance))
    outcome, opened = attempt(lambda: ShardedLog.open(target))
    if opened is not None:
        assert sum(len(shard) for shard in opened) == 40
    return outcome


# ---------------------------------------------------------------------- command lines

_WORDS = (
    *("audit", "fit", "evaluate", "simulate", "compare", "agents", "--columns", "--out", "--k", "²", "1"),
    *("-1", "--seed", "x", "--json", "--invalid", "drop", "nan", "1e999", "--gamma", "--users", "3", "-o"),
    *("k=1", "k=", "--help", "--session-gap", "30m", "30 parsecs", "--confidence", "storefront", "", "*"),
    *("nowhere.parquet", "--metric", "--churn-after", "never", "--data"),
)


def command_line(chance: random.Random, folder: Path) -> str:
    """Any words after ``shpi``: an exit code that means something, and never a traceback."""
    log = FIXTURES / "log.parquet"
    policy = FIXTURES / "policy-nested"
    known = [str(log), str(policy), str(folder / "out"), str(folder), *_WORDS]
    verb = chance.choice(["audit", "audit", "evaluate", "simulate", "agents", "fit", "compare"])
    first = [str(log)] if verb == "audit" else [str(policy), str(log)] if verb == "evaluate" else []
    words = [verb, *first, *(chance.choice(known) for _ in range(chance.randrange(1, 5)))]
    if verb in ("fit", "compare", "simulate", "agents"):  # only what is refused: the work itself is slow
        words.insert(1, "no such thing")
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code: Any = main(words)
        except SystemExit as end:
            code = end.code
    assert code in (0, 1, 2, 3, 4, 5, 74), (words, code, errors.getvalue()[-500:])
    assert "Traceback" not in errors.getvalue()
    if code == 2:
        assert errors.getvalue().strip(), words
    return "accepted" if code == 0 else "refused"


TARGETS: dict[str, Callable[[random.Random, Path], str]] = {
    "policy (unsigned)": unsigned_policy,
    "policy (signed)": signed_policy,
    "world": world,
    "log": log,
    "map": column_map,
    "canonical": canonical,
    "shards": shards,
    "command line": command_line,
    "evaluate": evaluate_small,
    "fit": fit_small,
}
