"""A log that grows tenfold: CPU per decision and peak memory of shard, audit, fit and evaluate.

    python -m benchmarks scale                                          1 and 10 million decisions
    SHPI_BENCH_SCALE=100000000 python -m benchmarks scale               100 million: 25 GB on the disk, hours
    SHPI_BENCH_SCALE_STEPS=shard,audit,fit python -m benchmarks scale   some of the steps

The log is generated on disk: users of 20 decisions on average, 16 columns, 20 actions, chosen by a softmax of
the first column; the reward depends on both and on a slow state of the user. Each step is a process of its
own. Peak memory of `evaluate` counts the pages of mapped files that happen to be in memory. In two processes
(``SHPI_BENCH_JOBS=2``) the work of `evaluate` is not in the CPU time shown. What a step took is written
beside the log, so the same command goes on after an interruption; all goes at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shpi
from benchmarks.report import Row, in_process
from shpi._core.progress import progress_bar
from shpi.data._log.slicing import join
from shpi.data.shards import ShardedLog, prepare_shards, split_shards
from shpi.files.atomic import write_text
from shpi.passes import Processes, Serial, audit_shards

FOLDER = Path(os.environ.get("SHPI_BENCH_DATA", "bench-data")) / "scale"
SIZES = [int(size) for size in os.environ.get("SHPI_BENCH_SCALE", "1000000,10000000").split(",")]
STEPS = os.environ.get("SHPI_BENCH_SCALE_STEPS", "shard,audit,split,fit,fit_in_memory,evaluate").split(",")
JOBS = int(os.environ.get("SHPI_BENCH_JOBS", "1"))  # processes of an evaluation
MOST_IN_MEMORY = 2_000_000  # decisions up to which the fit is compared with the same one in memory
ACTIONS, DIMENSIONS, DECISIONS = 20, 16, 20  # the last: decisions per user
BLOCK = 1_000_000  # rows of a file
FEATURES = tuple(f"f{j}" for j in range(DIMENSIONS))
COLUMNS = shpi.Columns(user="user", time="t", action="item", propensity="p", reward="r", context=FEATURES)


def generate(folder: str, rows: int) -> int:
    """Files of a million rows, in time order."""
    place = Path(folder)
    shutil.rmtree(place, ignore_errors=True)  # of an interrupted run
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


def fit_in_memory(place: str) -> float:
    """CPU seconds of the same fit when the log is in memory already."""
    logs = join(list(ShardedLog.open(f"{place}/train")))
    began = time.process_time()
    shpi.OfflineSHPI(gamma=0.9, seed=0, progress=False).fit(logs)
    return time.process_time() - began


def evaluate(place: str) -> str:
    policy = shpi.load_policy(f"{place}/policy")
    executor = Processes(jobs=JOBS) if JOBS > 1 else Serial()
    held_out = ShardedLog.open(f"{place}/held-out")
    evaluation = shpi.evaluate(policy, held_out, gate=shpi.Gate(), gamma=0.9, executor=executor)
    assert evaluation.verdict is not None
    return evaluation.verdict.decision


def run() -> list[Row]:
    rows: list[Row] = []
    before: dict[str, float] = {}
    for size in SIZES:
        place = FOLDER / str(size)
        taken = _taken(place, size)
        rows += _rows(taken, size, before)
        before = {step: figures["cpu"] for step, figures in taken.items()}
        shutil.rmtree(place, ignore_errors=True)
    return rows


def _taken(place: Path, size: int) -> dict[str, dict[str, Any]]:
    """What every step took: measured now, or before an interruption."""
    notes = place / "taken.json"
    taken: dict[str, dict[str, Any]] = json.loads(notes.read_text()) if notes.exists() else {}
    wanted = [step for step in STEPS if step != "fit_in_memory" or size <= MOST_IN_MEMORY]
    if not taken and not (place / "table-is-complete").exists():
        in_process(__name__, "generate", f"{place}/table", size)
        (place / "table-is-complete").touch()
    for step in wanted:
        if step in taken:
            continue
        for part in {"shard": ("shards",), "split": ("train", "held-out"), "fit": ("policy",)}.get(step, ()):
            shutil.rmtree(place / part, ignore_errors=True)
        taken[step] = in_process(__name__, step, str(place))
        write_text(notes, json.dumps(taken))
        if step == "shard":
            shutil.rmtree(place / "table")
    return taken


def _rows(taken: dict[str, dict[str, Any]], size: int, before: dict[str, float]) -> list[Row]:
    rows = []
    for step, done in taken.items():
        if step == "fit_in_memory":
            ratio = taken["fit"]["cpu"] / done["result"]
            rows.append(Row(f"fit, {size:,} decisions: against memory", ratio, "ratio", "", "<= 1.5"))
            continue
        looked_at = size // 2 if step in ("fit", "evaluate") else size
        name, note = f"{step}, {size:,} decisions", str(done["result"]) if step == "evaluate" else ""
        rows.append(Row(name, 1e6 * done["cpu"] / looked_at, "CPU-µs a decision", note))
        rows.append(Row(f"{name}: peak memory", done["peak"] / 1e9, "GB", "", "<= 3"))
        if step in before:
            growth = done["cpu"] / before[step]
            rows.append(Row(f"{step}: CPU against the size before", growth, "ratio", "", "<= 11"))
    return rows
