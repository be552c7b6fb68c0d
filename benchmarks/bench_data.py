"""Reading a 10-million-row log against the same scan and sort by hand, and a 50-million-row log in shards."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import polars as pl

import shpi
from benchmarks.report import Row, in_process
from shpi.data._log import ragged
from shpi.data.shards import ShardedLog, prepare_shards

FOLDER = Path(os.environ.get("SHPI_BENCH_DATA", "bench-data"))
ROWS = int(os.environ.get("SHPI_BENCH_ROWS", 10_000_000))
MANY_ROWS = int(os.environ.get("SHPI_BENCH_MANY_ROWS", 50_000_000))
FEATURES = tuple(f"f{j}" for j in range(16))
COLUMNS = shpi.Columns(
    user="user", time="ts", order="seq", action="item", propensity="p", reward="r",
    context=FEATURES, session_gap="30m",
)  # fmt: skip


def generate(folder: str, rows: int, users: int) -> int:
    """Write files of 2.5 million rows in time order, as a logging pipeline would."""
    place, step = Path(folder), 2_500_000
    place.mkdir(parents=True)
    random = np.random.default_rng(0)
    for number, start in enumerate(range(0, rows, step)):
        n = min(step, rows - start)
        columns: dict[str, object] = {
            "user": random.integers(0, users, n),
            "ts": np.sort(random.integers(0, 86_400_000_000, n)) + 86_400_000_000 * number,
            "seq": np.arange(start, start + n),
            "item": random.integers(0, 50, n, dtype=np.int32),
            "p": np.full(n, 1 / 50),
            "r": random.random(n),
        }
        columns |= {name: random.standard_normal(n, dtype=np.float32) for name in FEATURES}
        frame = pl.DataFrame(columns).with_columns(pl.col("ts").cast(pl.Datetime("us")))
        frame.write_parquet(place / f"part-{number:03d}.parquet")
    return rows


def by_hand(folder: str) -> int:
    """The peer: scan and sort the same files in polars, without any checks."""
    return pl.scan_parquet(f"{folder}/*.parquet").sort(["user", "ts", "seq"]).collect().height


def by_shpi(folder: str) -> dict[str, float]:
    logs = shpi.LoggedData.read(f"{folder}/*.parquet", COLUMNS, progress=False)
    return {"rows": len(logs), "sessions": logs.n_sessions, "bytes": logs.nbytes}


def prepare(folder: str, shards: str) -> int:
    return len(prepare_shards(f"{folder}/*.parquet", COLUMNS, shards, progress=False))


def returns_pass(shards: str, k: int, gamma: float) -> dict[str, float]:
    """The mean over users of the mean k-step discounted return, computed shard by shard."""
    total, users, rows = 0.0, 0, 0
    for logs in ShardedLog.open(shards):
        assert logs.rewards is not None
        value = logs.rewards.copy()
        stop = np.repeat(logs.offsets[1:], ragged.lengths(logs.offsets))
        for m in range(1, k):
            ahead = np.arange(len(logs) - m)
            inside = ahead + m < stop[: len(ahead)]
            value[ahead[inside]] += gamma**m * logs.rewards[ahead[inside] + m]
        total += float((np.add.reduceat(value, logs.offsets[:-1]) / ragged.lengths(logs.offsets)).sum())
        users, rows = users + logs.n_users, rows + len(logs)
    return {"mean": total / users, "rows": rows}


def run() -> list[Row]:
    shutil.rmtree(FOLDER, ignore_errors=True)
    try:
        return [*_reading(), *_sharding()]
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


def _reading() -> list[Row]:
    logs = str(FOLDER / "logs")
    in_process(__name__, "generate", logs, ROWS, 200_000)
    turns = [(in_process(__name__, "by_hand", logs), in_process(__name__, "by_shpi", logs)) for _ in range(3)]
    hand = min(turn[0]["wall"] for turn in turns)
    ours = min(turn[1]["wall"] for turn in turns)
    arrays = turns[0][1]["result"]["bytes"]
    peak = min(turn[1]["peak"] for turn in turns)
    size = f"{ROWS:,} rows, best of 3"
    shutil.rmtree(logs)
    return [
        Row("read, sort, sessions", ours, "s", size),
        Row("scan + sort by hand in polars", hand, "s", size),
        Row("time against polars by hand", ours / hand, "ratio", "", "<= 2"),
        Row("final arrays", arrays / 1e9, "GB"),
        Row("peak memory against final arrays", peak / arrays, "ratio", "whole process", "<= 2.5"),
    ]


def _sharding() -> list[Row]:
    logs, shards = str(FOLDER / "many"), str(FOLDER / "shards")
    in_process(__name__, "generate", logs, MANY_ROWS, 1_000_000)
    stage = in_process(__name__, "prepare", logs, shards)
    shutil.rmtree(logs)
    sweep = in_process(__name__, "returns_pass", shards, 5, 0.99)
    assert sweep["result"]["rows"] == MANY_ROWS
    size = f"{MANY_ROWS:,} rows, {stage['result']} shards"
    return [
        Row("prepare shards", stage["wall"], "s", size),
        Row("prepare shards: peak memory", stage["peak"] / 1e9, "GB", size, "<= 2"),
        Row("5-step returns over the shards", sweep["wall"], "s", size),
        Row("5-step returns: peak memory", sweep["peak"] / 1e9, "GB", size, "<= 2"),
    ]
