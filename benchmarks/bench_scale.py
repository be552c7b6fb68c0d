"""A log that grows tenfold: CPU per decision and peak memory of shard, audit, fit and evaluate.

    SHPI_BENCH_SCALE=1000000,10000000 python -m benchmarks scale

``SHPI_BENCH_JOBS=2`` evaluates in two processes, whose work is not in the CPU time of the table. The log is
generated on disk: users of 20 decisions on average, 16 columns, 20 actions, chosen by a softmax of the first
column; the reward depends on both and on a slow state of the user. Each step is a process of its own. Peak
memory of `evaluate` counts the pages of mapped files that happen to be in memory.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import polars as pl

import shpi
from benchmarks.report import Row, in_process
from shpi._core.progress import progress_bar
from shpi.data.shards import ShardedLog, prepare_shards, split_shards
from shpi.passes import Processes, Serial, audit_shards

FOLDER = Path(os.environ.get("SHPI_BENCH_DATA", "bench-data")) / "scale"
SIZES = [int(size) for size in os.environ.get("SHPI_BENCH_SCALE", "1000000,10000000").split(",")]
JOBS = int(os.environ.get("SHPI_BENCH_JOBS", "1"))
ACTIONS, DIMENSIONS, DECISIONS = 20, 16, 20  # the last: decisions per user
BLOCK = 1_000_000  # rows of a file
FEATURES = tuple(f"f{j}" for j in range(DIMENSIONS))
COLUMNS = shpi.Columns(user="user", time="t", action="item", propensity="p", reward="r", context=FEATURES)
STEPS = ("shard", "audit", "fit", "evaluate")


def generate(folder: str, rows: int) -> int:
    """Files of a million rows, in time order."""
    place = Path(folder)
    place.mkdir(parents=True)
    random = np.random.default_rng(0)
    users = rows // DECISIONS
    with progress_bar("generating", rows, False) as advance:
        for number, start in enumerate(range(0, rows, BLOCK)):
            n = min(BLOCK, rows - start)
            user = random.integers(0, users, n)
            x = random.standard_normal((n, DIMENSIONS), dtype=np.float32)
            state = np.sin(user * 0.1)
            scores = np.outer(x[:, 0], np.linspace(-1, 1, ACTIONS))
            chances = np.exp(scores - scores.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            item = (np.cumsum(chances, axis=1) < random.random((n, 1))).sum(axis=1).clip(max=ACTIONS - 1)
            reward = 0.3 * x[:, 1] * (item / ACTIONS - 0.5) + 0.2 * state + random.standard_normal(n)
            frame = {"user": user, "t": np.arange(start, start + n), "item": item.astype(np.int32)}
            frame |= {"p": chances[np.arange(n), item], "r": reward}
            frame |= {name: x[:, j] for j, name in enumerate(FEATURES)}
            pl.DataFrame(frame).write_parquet(place / f"part-{number:03d}.parquet")
            advance(n)
    return rows


def shard(place: str) -> int:
    return len(prepare_shards(f"{place}/table/*.parquet", COLUMNS, f"{place}/shards", progress=False))


def split(place: str) -> int:
    shards = ShardedLog.open(f"{place}/shards")
    return split_shards(shards, 0.5, (f"{place}/train", f"{place}/held-out"), seed=0)[1].rows


def audit(place: str) -> bool:
    return audit_shards(ShardedLog.open(f"{place}/shards")).fit


def fit(place: str) -> int:
    policy = shpi.OfflineSHPI(gamma=0.9, seed=0, progress=False).fit(ShardedLog.open(f"{place}/train"))
    policy.save(f"{place}/policy")
    return policy.n_actions


def evaluate(place: str) -> str:
    policy = shpi.load_policy(f"{place}/policy")
    executor = Processes(jobs=JOBS) if JOBS > 1 else Serial()
    held_out = ShardedLog.open(f"{place}/held-out")
    evaluation = shpi.evaluate(policy, held_out, gate=shpi.Gate(), gamma=0.9, executor=executor)
    assert evaluation.verdict is not None
    return evaluation.verdict.decision


def run() -> list[Row]:
    rows: list[Row] = []
    shutil.rmtree(FOLDER, ignore_errors=True)
    before: dict[str, float] = {}
    for size in SIZES:
        place = FOLDER / str(size)
        try:
            rows += _measured(str(place), size, before)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return rows


def _measured(place: str, size: int, before: dict[str, float]) -> list[Row]:
    in_process(__name__, "generate", f"{place}/table", size)
    rows = []
    for step in STEPS:
        if step == "fit":
            in_process(__name__, "split", place)
        done = in_process(__name__, step, place)
        if step == "shard":
            shutil.rmtree(f"{place}/table")
        looked_at = size // 2 if step == "evaluate" else size
        name, note = f"{step}, {size:,} decisions", str(done["result"]) if step == "evaluate" else ""
        rows.append(Row(name, 1e6 * done["cpu"] / looked_at, "CPU-µs a decision", note))
        rows.append(Row(f"{name}: peak memory", done["peak"] / 1e9, "GB", "", "<= 3"))
        if step in before:
            rows.append(
                Row(f"{step}: CPU against the size before", done["cpu"] / before[step], "ratio", "", "<= 11")
            )
        before[step] = done["cpu"]
    return rows
