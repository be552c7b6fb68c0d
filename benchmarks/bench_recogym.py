"""Speed of the RecoGym simulator, per CPU-second, against the original's figures.

The original's figures were measured on one core of a 2-core Xeon machine, median of 5, per CPU-second, with
uniform actions and users that leave. An event is a product view or a recommendation.
"""

from __future__ import annotations

import time
import tracemalloc
from statistics import median
from typing import Any

import numpy as np

from benchmarks.report import Row
from shpi.envs.recogym.simulator import RecoGym

ORIGINAL = {"v1 P=100": 11_168, "v1 P=10": 11_682, "v0 P=10": 43_921}  # events per CPU-second
USERS = 10_000


def events_per_second(sim: RecoGym, users: int, steps: int, seed: int) -> float:
    """Views and recommendations per CPU-second; drawing the uniform actions is part of the time."""
    rng = np.random.default_rng(seed)
    start = time.process_time()
    contexts = sim.reset(users, seed)
    for _ in range(steps):
        step = sim.step(rng.integers(sim.n_actions, size=users))
        contexts = step.contexts
        if step.ended.all():
            break
    spent = time.process_time() - start
    return float((contexts.sum(dtype=np.float64) + sim.decisions.sum()) / spent)


def bytes_per_user(users: int) -> float:
    """Peak bytes per user of a batch, a step's results included."""
    sim = RecoGym()
    tracemalloc.start()
    sim.reset(users, 0)
    for _ in range(10):
        step = sim.step(np.zeros(users, dtype=np.int64))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(step.rewards) == users
    return peak / users


def run(*, users: int = USERS, repeats: int = 5) -> list[Row]:
    settings: list[tuple[str, str, dict[str, Any]]] = [
        ("v1 P=100", "nobody leaves, T = 200", {}),
        ("v1 P=100", "users leave, T = 200", {"leaving": True}),
        ("v1 P=10", "nobody leaves, T = 200", {"n_products": 10}),
        ("v1 P=10", "users leave, T = 200", {"n_products": 10, "leaving": True}),
        ("v0 P=10", "nobody leaves, T = 200", {"version": 0, "reward": "click", "n_products": 10}),
    ]
    rows: list[Row] = []
    for name, note, options in settings:
        sim = RecoGym(**options)
        events_per_second(sim, users, 5, 0)
        speed = median(events_per_second(sim, users, sim.horizon, seed) for seed in range(repeats))
        rows.append(Row(f"recogym {name}", speed, "events/CPU-s", f"{users:,} users, {note}"))
        rows.append(
            Row(
                f"recogym {name}, ratio",
                speed / ORIGINAL[name],
                "x",
                f"to the original's {ORIGINAL[name]:,}; {note}",
                goal=">= 100",
            )
        )
    rows += [
        Row("recogym memory", bytes_per_user(size), "bytes/user", f"{size:,} users, P = 100, peak of a step")
        for size in (2_000, 20_000)
    ]
    return rows
