"""Peak memory and CPU seconds of reading, learning and evaluating, for logs that are large in one direction.

Every row is a separate process. The goal limits anonymous memory, which can get a process killed; pages of
mapped files are resident, too, but the system can reclaim them. A step that is refused beforehand counts as
an answer, with the memory used until then. ``SHPI_BENCH_SHAPES=actions,users`` chooses shapes,
``SHPI_BENCH_SCALE=0.1`` makes all of them smaller.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shpi
from benchmarks.report import Row, in_process
from shpi.errors import ShpiError

SCALE = float(os.environ.get("SHPI_BENCH_SCALE", "1"))
CHOSEN = os.environ.get("SHPI_BENCH_SHAPES", "")
STEP = 1_000_000  # rows per file


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The size of a log in each direction."""

    words: str
    rows: int
    users: int
    actions: int = 10
    columns: int = 10
    shards: bool = False  # evaluated in shards, since it may not fit in memory
    goal: float = 2.0  # most anonymous memory of a step, in GB


SHAPES = {
    "rows": Shape(
        words="20 million rows",
        rows=20_000_000,
        users=1_000_000,
        actions=50,
        columns=16,
        shards=True,
        goal=4.0,
    ),
    "actions": Shape(words="10,000 actions", rows=200_000, users=20_000, actions=10_000),
    "columns": Shape(words="1,000 columns", rows=100_000, users=10_000, columns=1_000, goal=4.0),
    "users": Shape(words="a million users, one decision each", rows=1_000_000, users=1_000_000),
    "decisions": Shape(words="one user, a million decisions", rows=1_000_000, users=1),
}


def run() -> Iterator[Row]:
    for name, shape in SHAPES.items():
        if CHOSEN and name not in CHOSEN.split(","):
            continue
        with tempfile.TemporaryDirectory() as folder:
            in_process(__name__, "generate", folder, name)
            steps = ["read", "prepare", "fit", "evaluate"] if shape.shards else ["read", "fit", "evaluate"]
            for step in steps:
                done = in_process(__name__, step, folder, name)
                own, resident = done["anonymous"] / 1e9, done["peak"] / 1e9
                note = f"{resident:.2f} GB resident; {done['cpu']:.0f} CPU-s; {done['result']}"
                print(f"  {shape.words}: {step}: {own:.2f} GB of its own, {note}", flush=True)
                yield Row(f"{shape.words}: {step}", own, "GB", note, f"<= {shape.goal:g}")


def generate(folder: str, name: str) -> int:
    """Write rows in time order; actions are uniform, and one in ten has a higher reward."""
    shape, random = SHAPES[name], np.random.default_rng(0)
    total = int(SCALE * shape.rows)
    once = shape.users == shape.rows
    for number, start in enumerate(range(0, total, STEP)):
        n = min(STEP, total - start)
        actions = random.integers(0, shape.actions, n, dtype=np.int32)
        frame: dict[str, Any] = {
            "user": np.arange(start, start + n) if once else random.integers(0, shape.users, n),
            "ts": np.arange(start, start + n),
            "item": actions,
            "p": np.full(n, 1 / shape.actions),
            "r": (actions % 10 == 0) + random.standard_normal(n),
        }
        frame |= {f"f{j}": random.standard_normal(n, dtype=np.float32) for j in range(shape.columns)}
        pl.DataFrame(frame).write_parquet(Path(folder) / f"part-{number:03d}.parquet")
    return total


def read(folder: str, name: str) -> str:
    logs = _logs(folder, name)
    return f"{len(logs):,} rows, {logs.nbytes / 1e9:.2f} GB of arrays"


def prepare(folder: str, name: str) -> str:
    target = Path(folder) / "shards"
    shutil.rmtree(target, ignore_errors=True)
    from shpi.data.shards import prepare_shards

    return f"{len(prepare_shards(f'{folder}/*.parquet', _columns(name), target, progress=False))} shards"


def fit(folder: str, name: str) -> str:
    try:
        policy = shpi.OfflineSHPI(progress=False).fit(_logs(folder, name))
    except ShpiError as error:
        return f"refused: {error}"
    return f"{len(policy.trials)} candidates tested"


def evaluate(folder: str, name: str) -> str:
    from shpi.data.shards import ShardedLog

    shape = SHAPES[name]
    logs = ShardedLog.open(Path(folder) / "shards") if shape.shards else _logs(folder, name)
    try:
        first = logs if isinstance(logs, shpi.LoggedData) else next(iter(logs))
        report = shpi.evaluate(_Favours(first), logs, details=False)
    except ShpiError as error:
        return f"refused: {error}"
    return f"{len(report.estimates)} estimators"


class _Favours:
    """A policy with twice mu's probability for the actions with a higher reward."""

    def __init__(self, logs: shpi.LoggedData) -> None:
        weights = 1.0 + (np.asarray(logs.action_space.ids) % 10 == 0)
        self.probs, self.n_actions, self.width = weights / weights.sum(), logs.n_actions, logs.schema.width

    def action_probs(self, contexts: Any, candidates: Any = None) -> Any:
        return np.tile(self.probs, (len(contexts), 1))


def _columns(name: str) -> shpi.Columns:
    return shpi.Columns(
        user="user", time="ts", action="item", propensity="p", reward="r",
        context=tuple(f"f{j}" for j in range(SHAPES[name].columns)),
    )  # fmt: skip


def _logs(folder: str, name: str) -> shpi.LoggedData:
    return shpi.LoggedData.read(f"{folder}/*.parquet", _columns(name), progress=False)
