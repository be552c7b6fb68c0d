"""News: one of ten candidates out of 200 articles, in Parquet, with a table of articles; bait drives away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.strangers.world import timestamps
from shpi.protocols import BoolArray, Float64Array, Int64Array

ARTICLES, SHOWN = 200, 10
_RNG = np.random.default_rng(2026)
BAIT = _RNG.beta(1.2, 1.8, ARTICLES)
TOPIC = _RNG.integers(0, 2, ARTICLES)


class News:
    """Each article has a topic and some bait. Bait is read, and readers trust the site less."""

    name = "news"
    items: tuple[str, ...] = tuple(f"a{i:03d}" for i in range(ARTICLES))
    window, span = 20, 50
    logged = 8_000
    log = "impressions.parquet"
    options: tuple[str, ...] = ()
    columns = """user = "reader"
time = "time"
action = "article"
propensity = "pscore"
reward = "read"
candidates = "slate"
context = ["trust", "likes_sport"]
action_features = "articles.parquet"
session_gap = "1h"
metric = "read in 20d"
"""

    def users(self, n: int, rng: np.random.Generator) -> dict[str, Any]:
        """Trust and taste."""
        return {"trust": rng.normal(0, 0.3, n), "sport": rng.random(n) < 0.5}

    def contexts(self, state: dict[str, Any], who: Int64Array) -> pl.DataFrame:
        """Both are known."""
        return pl.DataFrame(
            {"trust": np.round(state["trust"][who], 3), "likes_sport": state["sport"][who].astype(int)}
        )

    def candidates(self, n: int, rng: np.random.Generator) -> BoolArray | None:
        """Ten articles."""
        chosen = np.argpartition(rng.random((n, ARTICLES), dtype=np.float32), SHOWN, axis=1)[:, :SHOWN]
        allowed = np.zeros((n, ARTICLES), dtype=bool)
        np.put_along_axis(allowed, chosen, True, axis=1)
        return allowed

    def behaviour(self, contexts: pl.DataFrame, candidates: BoolArray | None) -> Float64Array:
        """A random one of the ten."""
        assert candidates is not None
        chances: Float64Array = candidates / candidates.sum(axis=1, keepdims=True)
        return chances

    def decide(
        self, state: dict[str, Any], who: Int64Array, actions: Int64Array, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Read or not, and trust."""
        taste = TOPIC[actions] == state["sport"][who]
        chance = np.clip(0.15 + 0.2 * BAIT[actions] + 0.2 * taste + 0.05 * np.tanh(state["trust"][who]), 0, 1)
        state["trust"][who] = 0.8 * state["trust"][who] + 0.9 * (0.4 - BAIT[actions])
        return {"reward": (rng.random(len(who)) < chance).astype(float)}

    def comes_back(self, state: dict[str, Any], who: Int64Array, rng: np.random.Generator) -> BoolArray:
        """Trust brings readers back."""
        chance: Float64Array = 1 / (1 + np.exp(-0.5 - 1.5 * state["trust"][who]))
        return rng.random(len(who)) < chance

    def pause(self, n: int, rng: np.random.Generator) -> Float64Array:
        """About three days."""
        return 0.5 + rng.exponential(2.5, n)

    def visit_length(self, n: int, rng: np.random.Generator) -> Int64Array:
        """One or two articles."""
        return rng.integers(1, 3, n)

    def write(self, rows: pl.DataFrame, folder: Path, rng: np.random.Generator) -> None:
        """Impressions, and what is known of articles."""
        rows.select(
            reader=pl.format("r{}", "user"),
            time=timestamps(rows),
            article="action",
            slate="candidates",
            pscore="p",
            trust="trust",
            likes_sport="likes_sport",
            read="reward",
        ).write_parquet(folder / self.log)
        pl.DataFrame({"article": self.items, "bait": BAIT, "sport": TOPIC.astype(float)}).write_parquet(
            folder / "articles.parquet"
        )
