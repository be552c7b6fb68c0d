"""A shop's recommendations: a semicolon CSV without propensities. Bargains sell, inspiration brings back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.strangers.world import timestamps
from shpi.protocols import BoolArray, Float64Array, Int64Array

SELLS = np.array([0.34, 0.30, 0.16, 0.10, 0.20])  # at once, with a neutral mood
BRINGS_BACK = np.array([-0.8, -0.4, 0.9, 0.6, 0.0])  # to the mood


class Shop:
    """Five shelves. The mood of a user rises with inspiring ones, and both sales and return follow it."""

    name = "shop"
    items: tuple[str, ...] = ("bargains", "bestsellers", "inspiration", "guides", "classics")
    window, span = 30, 75
    logged = 12_000
    log = "clicks.csv"
    options: tuple[str, ...] = ("--estimate-propensities",)
    columns = """user = "customer_id"
time = "ts"
action = "shelf"
reward = "purchased"
metrics = ["clicked"]
context = ["device", "interest", "visits_before"]
session_gap = "30m"
metric = "purchased in 30d"
"""

    def users(self, n: int, rng: np.random.Generator) -> dict[str, Any]:
        """Mood, device, visits so far."""
        return {"mood": rng.normal(0, 0.5, n), "phone": rng.random(n) < 0.6, "visits": np.zeros(n)}

    def contexts(self, state: dict[str, Any], who: Int64Array) -> pl.DataFrame:
        """The mood shows in the interest that the shop measures."""
        return pl.DataFrame(
            {
                "device": np.where(state["phone"][who], "phone", "desktop"),
                "interest": np.round(state["mood"][who], 3),
                "visits_before": np.minimum(state["visits"][who], 5),
            }
        )

    def candidates(self, n: int, rng: np.random.Generator) -> BoolArray | None:
        """All shelves."""
        return None

    def behaviour(self, contexts: pl.DataFrame, candidates: BoolArray | None) -> Float64Array:
        """What sells gets shown more, on phones even more."""
        phone = (contexts["device"] == "phone").to_numpy()[:, None]
        scores = np.array([1.0, 0.6, 0.0, 0.0, 0.3]) * np.where(phone, 1.0, 0.4)
        weights = np.exp(scores)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def decide(
        self, state: dict[str, Any], who: Int64Array, actions: Int64Array, rng: np.random.Generator
    ) -> dict[str, Any]:
        """A purchase now, and a mood for later."""
        chance = np.clip(SELLS[actions] * (1 + 0.5 * np.tanh(state["mood"][who])), 0, 1)
        bought = rng.random(len(who)) < chance
        clicked = bought | (rng.random(len(who)) < 0.3)
        state["mood"][who] = 0.7 * state["mood"][who] + 0.5 * BRINGS_BACK[actions]
        return {"reward": bought.astype(float), "clicked": clicked.astype(float)}

    def comes_back(self, state: dict[str, Any], who: Int64Array, rng: np.random.Generator) -> BoolArray:
        """The mood decides."""
        state["visits"][who] += 1
        chance: Float64Array = 1 / (1 + np.exp(-0.4 - 1.2 * state["mood"][who]))
        return rng.random(len(who)) < chance

    def pause(self, n: int, rng: np.random.Generator) -> Float64Array:
        """About five days."""
        return 1 + rng.exponential(4.0, n)

    def visit_length(self, n: int, rng: np.random.Generator) -> Int64Array:
        """One or two shelves a visit."""
        return rng.integers(1, 3, n)

    def write(self, rows: pl.DataFrame, folder: Path, rng: np.random.Generator) -> None:
        """One CSV with semicolons, as a spreadsheet exports it."""
        table = rows.select(
            customer_id=pl.format("c{}", "user"),
            ts=timestamps(rows).dt.strftime("%Y-%m-%d %H:%M:%S"),
            shelf="action",
            device="device",
            interest="interest",
            visits_before="visits_before",
            clicked="clicked",
            purchased="reward",
        )
        table.sample(fraction=1.0, shuffle=True, seed=1).write_csv(folder / self.log, separator=";")
