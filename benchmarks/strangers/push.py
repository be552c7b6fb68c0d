"""Push notifications: sends in one CSV, conversions in another; urgency converts today, and tires people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.strangers.world import DAY, timestamps
from shpi.protocols import BoolArray, Float64Array, Int64Array

CONVERTS = np.array([0.30, 0.16, 0.12, 0.02])
TIRES = np.array([0.45, 0.10, 0.02, -0.20])


class Push:
    """Four templates, one a day. Who is tired mutes the app."""

    name = "push"
    items: tuple[str, ...] = ("urgent", "offer", "story", "none")
    window, span = 21, 60
    logged = 12_000
    log = "sends.csv"
    options: tuple[str, ...] = ()
    columns = """user = "user_id"
time = "sent_at"
action = "template"
propensity = "prob"
context = ["fatigue", "android", "days_installed"]
metric = "conversions in 21d"

[[events]]
table = "conversions.csv"
name = "conversions"
time = "converted_at"
within = "12h"
"""

    def users(self, n: int, rng: np.random.Generator) -> dict[str, Any]:
        """Fatigue, phone, days since the app was installed."""
        return {"tired": rng.uniform(0, 0.6, n), "android": rng.random(n) < 0.5, "days": np.zeros(n)}

    def contexts(self, state: dict[str, Any], who: Int64Array) -> pl.DataFrame:
        """Fatigue as the app scores it."""
        return pl.DataFrame(
            {
                "fatigue": np.round(state["tired"][who], 3),
                "android": state["android"][who].astype(int),
                "days_installed": np.minimum(state["days"][who], 14),
            }
        )

    def candidates(self, n: int, rng: np.random.Generator) -> BoolArray | None:
        """All templates."""
        return None

    def behaviour(self, contexts: pl.DataFrame, candidates: BoolArray | None) -> Float64Array:
        """Urgent ones often; a little of everything."""
        android = contexts["android"].to_numpy()[:, None] == 1
        return np.where(android, np.array([[0.4, 0.25, 0.2, 0.15]]), np.array([[0.3, 0.3, 0.25, 0.15]]))

    def decide(
        self, state: dict[str, Any], who: Int64Array, actions: Int64Array, rng: np.random.Generator
    ) -> dict[str, Any]:
        """A conversion today."""
        chance = CONVERTS[actions] * np.exp(-0.8 * state["tired"][who])
        converted = rng.random(len(who)) < chance
        state["tired"][who] = np.clip(0.8 * state["tired"][who] + TIRES[actions], 0, 3)
        return {"reward": converted.astype(float)}

    def comes_back(self, state: dict[str, Any], who: Int64Array, rng: np.random.Generator) -> BoolArray:
        """Tired people mute the app for good."""
        state["days"][who] += 2
        chance: Float64Array = 0.97 * np.exp(-0.40 * state["tired"][who])
        return rng.random(len(who)) < chance

    def pause(self, n: int, rng: np.random.Generator) -> Float64Array:
        """Every second day, at another hour."""
        return 2 + rng.uniform(-0.3, 0.3, n)

    def visit_length(self, n: int, rng: np.random.Generator) -> Int64Array:
        """One."""
        return np.ones(n, dtype=np.int64)

    def write(self, rows: pl.DataFrame, folder: Path, rng: np.random.Generator) -> None:
        """Sends, and conversions within half a day; some conversions have no push before them."""
        sends = rows.select(
            user_id="user",
            sent_at=timestamps(rows).dt.strftime("%Y-%m-%dT%H:%M:%SZ"),
            template="action",
            prob="p",
            fatigue="fatigue",
            android="android",
            days_installed="days_installed",
        )
        sends.write_csv(folder / self.log)
        converted = rows.filter(pl.col("reward") > 0)
        delay = pl.Series(rng.uniform(0.01, 0.45, converted.height) * DAY)
        sales = converted.select(
            user_id="user",
            converted_at=(timestamps(converted) + delay.cast(pl.Duration("us"))).dt.strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            ),
            amount=pl.Series(np.round(rng.gamma(2, 20, converted.height), 2)),
        )
        organic = sales.head(20).with_columns(user_id=pl.col("user_id") + 10_000_000)
        pl.concat([sales, organic]).write_csv(folder / "conversions.csv")
