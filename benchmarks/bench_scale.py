"""Logs of growing size: CPU per decision and peak memory of shard, audit, split, fit and evaluate.

    python -m benchmarks scale                                          1 and 10 million decisions
    SHPI_BENCH_SCALE=100000000 python -m benchmarks scale               100 million: 60 GB on the disk, hours
    SHPI_BENCH_SCALE_STEPS=shard,audit,fit python -m benchmarks scale   some of the steps
    SHPI_BENCH_JOBS=1,2 python -m benchmarks scale                      in one process, then in two
    SHPI_BENCH_KEEP=1 python -m benchmarks scale                        keep the log and the figures

The log is generated on disk: users of 20 decisions on average, 16 columns, 20 actions, chosen by a softmax of
the first column; the reward depends on both and on a slow state of the user. Each step is a separate process;
with two processes their CPU times are added, and their output must equal that of one. Peak memory is that of
the largest process, resident pages of mapped files included. The figures of a step are written beside the
log, so the same command resumes after an interruption, and further steps, sizes and numbers of processes
reuse a log that was kept. Without SHPI_BENCH_KEEP everything is removed at the end. The table of
docs/larger-than-memory.md is printed last.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shpi
from benchmarks.report import Row, in_process
from shpi._core.executors import end_processes, executor_of
from shpi._core.progress import progress_bar
from shpi.data._log.slicing import join
from shpi.data.shards import ShardedLog, prepare_shards, split_shards
from shpi.files.atomic import write_text
from shpi.passes import audit_shards

FOLDER = Path(os.environ.get("SHPI_BENCH_DATA", "bench-data")) / "scale"
SIZES = [int(size) for size in os.environ.get("SHPI_BENCH_SCALE", "1000000,10000000").split(",")]
STEPS = os.environ.get("SHPI_BENCH_SCALE_STEPS", "shard,audit,split,fit,fit_in_memory,evaluate").split(",")
JOBS = [int(jobs) for jobs in os.environ.get("SHPI_BENCH_JOBS", "1").split(",")]  # numbers of processes
KEEP = bool(os.environ.get("SHPI_BENCH_KEEP"))
ALONE = ("shard", "fit_in_memory")  # steps that run in one process
LOOKS_AT_HALF = ("fit", "evaluate")  # steps that get half of the users
MOST_IN_MEMORY = 2_000_000  # up to this many decisions, the fit is compared with one in memory
ACTIONS, DIMENSIONS, DECISIONS = 20, 16, 20  # actions, context columns, decisions per user
BLOCK = 1_000_000  # rows per file
FEATURES = tuple(f"f{j}" for j in range(DIMENSIONS))
COLUMNS = shpi.Columns(user="user", time="t", action="item", propensity="p", reward="r", context=FEATURES)


def generate(folder: str, rows: int) -> int:
    """Write files of a million rows, in time order."""
    place = Path(folder)
    shutil.rmtree(place, ignore_errors=True)  # left by an interrupted run
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


def shard(place: str, jobs: int) -> int:
    return len(prepare_shards(f"{place}/table/*.parquet", COLUMNS, f"{place}/shards", progress=False))


def audit(place: str, jobs: int) -> str:
    return _digest(str(audit_shards(ShardedLog.open(f"{place}/shards"), executor=executor_of(jobs))))


def split(place: str, jobs: int) -> str:
    shards, folders = ShardedLog.open(f"{place}/shards"), (_of("train", jobs), _of("held-out", jobs))
    places = (f"{place}/{folders[0]}", f"{place}/{folders[1]}")
    parts = split_shards(shards, 0.5, places, seed=0, executor=executor_of(jobs))
    return " ".join(part.fingerprint() for part in parts)


def fit(place: str, jobs: int) -> str:
    logs, learner = ShardedLog.open(f"{place}/train"), shpi.OfflineSHPI(gamma=0.9, seed=0, progress=False)
    policy = learner.fit(logs, executor=executor_of(jobs))
    policy.save(f"{place}/{_of('policy', jobs)}")
    x = np.random.default_rng(0).standard_normal((100, DIMENSIONS))
    return _digest(policy.action_probs(x).tobytes().hex())


def fit_in_memory(place: str, jobs: int) -> float:
    """CPU seconds of the same fit with the log already in memory."""
    logs = join(list(ShardedLog.open(f"{place}/train")))
    began = time.process_time()
    shpi.OfflineSHPI(gamma=0.9, seed=0, progress=False).fit(logs)
    return time.process_time() - began


def evaluate(place: str, jobs: int) -> str:
    policy, held_out = shpi.load_policy(f"{place}/policy"), ShardedLog.open(f"{place}/held-out")
    who = executor_of(jobs)
    evaluation = shpi.evaluate(policy, held_out, gate=shpi.Gate(), gamma=0.9, executor=who)
    assert evaluation.verdict is not None
    return f"{evaluation.verdict.decision}, lift {evaluation.decisive.lift!r}"


def timed(step: str, place: str, jobs: int) -> Any:
    """Run a step and end its processes, so that their CPU time and memory are known."""
    result = globals()[step](place, jobs)
    end_processes()
    return result


def _of(name: str, jobs: int) -> str:
    return name if jobs == 1 else f"{name}-{jobs}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


# ---------------------------------------------------------------------- all of them


def run() -> list[Row]:
    rows: list[Row] = []
    by_size: dict[int, dict[str, Any]] = {}
    for size in SIZES:
        place = FOLDER / str(size)
        by_size[size] = _taken(place, size)
        rows += _rows(by_size, size)
        if not KEEP:
            shutil.rmtree(place, ignore_errors=True)
    print("\n".join(_page(by_size)))
    return rows


def _name(step: str, jobs: int) -> str:
    return step if jobs == 1 else f"{step} --jobs {jobs}"


def _wanted(size: int) -> list[tuple[str, int]]:
    steps = [step for step in STEPS if step != "fit_in_memory" or size <= MOST_IN_MEMORY]
    return [(step, jobs) for step in steps for jobs in JOBS if jobs == 1 or step not in ALONE]


def _taken(place: Path, size: int) -> dict[str, Any]:
    """CPU time and memory of every step: measured now, or before an interruption."""
    notes = place / "taken.json"
    taken: dict[str, Any] = json.loads(notes.read_text()) if notes.exists() else {}
    if "shard" not in taken and not (place / "table-is-complete").exists():
        in_process(__name__, "generate", f"{place}/table", size)
        (place / "table-is-complete").touch()
    for step, jobs in _wanted(size):
        if _name(step, jobs) in taken:
            continue
        written = {"shard": ("shards",), "split": ("train", "held-out"), "fit": ("policy",)}.get(step, ())
        for name in written:  # left by an interrupted run
            shutil.rmtree(place / _of(name, jobs), ignore_errors=True)
        taken[_name(step, jobs)] = in_process(__name__, "timed", step, str(place), jobs)
        write_text(notes, json.dumps(taken))
        if step == "shard":
            shutil.rmtree(place / "table")
        for name in written if jobs > 1 else ():  # its digest was compared
            shutil.rmtree(place / _of(name, jobs), ignore_errors=True)
    return taken


def _rows(by_size: dict[int, dict[str, Any]], size: int) -> list[Row]:
    rows, taken, smaller = [], by_size[size], by_size.get(size // 10, {})
    for name, done in taken.items():
        step = name.split()[0]
        if step == "fit_in_memory":
            ratio = taken["fit"]["cpu"] / done["result"]
            rows.append(Row(f"fit, {size:,} decisions: against memory", ratio, "ratio", "", "<= 1.5"))
            continue
        title, note = f"{name}, {size:,} decisions", str(done["result"]) if step == "evaluate" else ""
        rows.append(Row(title, _each(name, done, size), "CPU-µs a decision", note))
        rows.append(Row(f"{title}: peak memory of a process", _peak(done), "GB", "", "<= 3"))
        if name in smaller:
            growth = done["cpu"] / smaller[name]["cpu"]
            rows.append(Row(f"{name}: CPU against a tenth of the size", growth, "ratio", "", "<= 11"))
        if name != step and step in taken:
            same = float(done["result"] == taken[step]["result"])
            rows.append(Row(f"{title}: as by one process", same, "same result", "", ">= 1"))
    return rows


def _each(name: str, done: dict[str, Any], size: int) -> float:
    """CPU-microseconds for each decision of the log that the step gets."""
    looked_at = size // 2 if name.split()[0] in LOOKS_AT_HALF else size
    return 1e6 * float(done["cpu"]) / looked_at


def _peak(done: dict[str, Any]) -> float:
    return max(float(done["peak"]), float(done["peak_of_children"])) / 1e9


def _page(by_size: dict[int, dict[str, Any]]) -> Iterator[str]:
    """The table of docs/larger-than-memory.md."""
    yield "| decisions | `shard` | `audit` | `split` | `fit`, on half of them | `evaluate`, on the others |"
    yield "|---|---|---|---|---|---|"
    for size, taken in by_size.items():
        for jobs in JOBS:
            cells = []
            for step in ("shard", "audit", "split", "fit", "evaluate"):
                done = taken.get(_name(step, jobs))
                words = "" if done is None else f"{_each(step, done, size):.3g} µs, {_peak(done):.2f} GB"
                cells.append(words)
            processes = "" if jobs == 1 else f", {jobs} processes"
            yield f"| {size:,}{processes} | " + " | ".join(cells) + " |"
