"""Fitted worlds: decisions per CPU-second, the time to fit, and the tables against boosted trees.

KuaiRand's files are looked for in SHPI_DATA, then in ``shared/data`` beside the checkout; without them its
rows are left out.
"""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import numpy as np

from benchmarks.report import Row
from shpi.data.logged import LoggedData
from shpi.envs import FittedWorld, Storefront, WorldModel
from shpi.envs.kuairand.world import KuaiRandLogs, fit_kuairand, kuairand_logs
from shpi.envs.rollout import rollout
from shpi.errors import ShpiError
from shpi.policies import UniformPolicy


def steps_per_second(world: FittedWorld, n: int, steps: int, repeats: int) -> float:
    """Decisions of users who have not ended, per CPU-second; best of several measurements."""
    rng, best = np.random.default_rng(0), 0.0
    for repeat in range(repeats):
        actions = rng.integers(0, world.n_actions, (steps, n))
        world.reset(n, repeat)
        running, decided = n, 0
        began = time.process_time()
        for decision in actions:
            decided += running
            running = n - int(world.step(decision).ended.sum())
            if not running:
                break
        best = max(best, decided / (time.process_time() - began))
    return best


def log_steps_per_second(world: FittedWorld, n: int) -> float:
    began = time.process_time()
    decisions = len(rollout(world, UniformPolicy(world.n_actions), n, seed=0))
    return decisions / (time.process_time() - began)


def bytes_of_simulator(world: FittedWorld, n: int) -> int:
    """Peak bytes of a reset and a few steps."""
    world.reset(10, 0)
    world.step(np.zeros(10, dtype=np.int64))  # warm up: the donors' indexes are built once
    tracemalloc.start()
    world.reset(n, 0)
    for _ in range(3):
        world.step(np.zeros(n, dtype=np.int64))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def lookup_against_trees(world: FittedWorld, logs: LoggedData) -> tuple[float, float] | None:
    """Microseconds per row of the tables and of LightGBM (150 trees of 15 leaves) for the same outcome."""
    try:
        import lightgbm
    except ImportError:
        return None
    assert logs.rewards is not None
    options = {"objective": "binary", "num_leaves": 15, "verbose": -1, "num_threads": 1}
    trees = lightgbm.train(options, lightgbm.Dataset(logs.contexts, logs.rewards), 150)
    x = logs.contexts[:20_000]
    began = time.process_time()
    world.models.reward_state.eta(world.models.bins.code(x))
    middle = time.process_time()
    trees.predict(x)
    return (middle - began) / len(x) * 1e6, (time.process_time() - middle) / len(x) * 1e6


def kuairand() -> KuaiRandLogs | None:
    place = os.environ.get("SHPI_DATA", str(Path(__file__).resolve().parents[2] / "shared" / "data"))
    try:
        return kuairand_logs(place)
    except ShpiError:
        return None


def shop_rows() -> list[Row]:
    logs = Storefront().rollout(UniformPolicy(5), 4_000, seed=0)
    began = time.process_time()
    world = WorldModel().fit(logs, seed=0)
    spent = time.process_time() - began
    few, many = (bytes_of_simulator(world, n) for n in (4_000, 40_000))
    return [
        Row("storefront's log, fit", spent, "CPU-s", f"{len(logs):,} decisions, 5 members, ridge chosen"),
        Row("storefront's log, steps", steps_per_second(world, 5_000, 10, 3), "steps/CPU-s", "5,000 users"),
        Row("memory, 10x the users", many / few, "times", "linear is 10", "<= 11"),
    ]


def run() -> list[Row]:
    rows, logs = shop_rows(), kuairand()
    if logs is None:
        return rows
    began = time.process_time()
    world = fit_kuairand(logs)
    spent = time.process_time() - began
    rows += [
        Row("KuaiRand, fit", spent, "CPU-s", f"{len(logs.standard):,} decisions, 5 members", "<= 60"),
        Row(
            "KuaiRand, steps", steps_per_second(world, 10_000, 20, 3), "steps/CPU-s", "10,000 users together"
        ),
        Row(
            "KuaiRand, members mixed",
            steps_per_second(world.with_member("mix"), 10_000, 20, 2),
            "steps/CPU-s",
        ),
        Row("KuaiRand, with policy and log", log_steps_per_second(world, 5_000), "steps/CPU-s", "uniform"),
        Row("KuaiRand, memory per user", bytes_of_simulator(world, 10_000) / 10_000, "bytes", "peak"),
    ]
    peer = lookup_against_trees(world, logs.standard)
    if peer is not None:
        note = f"LightGBM {peer[1]:.2f} µs per row and outcome, tables {peer[0]:.2f}"
        rows.append(Row("tables against trees", peer[1] / peer[0], "times", note))
    return rows
