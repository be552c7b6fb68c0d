"""A decision service: JSON lines with costs, ranked actions and nested contexts; hints help to stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.strangers.world import timestamps
from shpi.protocols import BoolArray, Float64Array, Int64Array

EPSILON = 0.6
PAYS = np.array([0.6, 0.3, 0.25])
TEACHES = np.array([-0.25, 0.35, 0.10])


class Personalizer:
    """A game that pays out, hints or challenges. Skill keeps players; payouts now do not."""

    name = "personalizer"
    items: tuple[str, ...] = ("payout", "hint", "challenge")
    window, span = 14, 45
    logged = 6_000
    log = "decisions.json"
    options: tuple[str, ...] = ()
    columns = """user = "Player.id"
time = "Timestamp"
action = "action"
propensity = "probability"
reward = "reward"
context = ["Player.skill", "Player.platform"]
session_gap = "30m"
metric = "reward in 14d"
"""

    def users(self, n: int, rng: np.random.Generator) -> dict[str, Any]:
        """Skill and platform."""
        return {"skill": rng.normal(0, 0.4, n), "console": rng.random(n) < 0.5}

    def contexts(self, state: dict[str, Any], who: Int64Array) -> pl.DataFrame:
        """As the game sends them."""
        return pl.DataFrame(
            {
                "Player.skill": np.round(state["skill"][who], 3),
                "Player.platform": np.where(state["console"][who], "console", "pc"),
            }
        )

    def candidates(self, n: int, rng: np.random.Generator) -> BoolArray | None:
        """All three."""
        return None

    def behaviour(self, contexts: pl.DataFrame, candidates: BoolArray | None) -> Float64Array:
        """Epsilon-greedy: payouts on consoles, challenges on computers."""
        console = (contexts["Player.platform"] == "console").to_numpy()
        probs = np.full((len(console), 3), EPSILON / 3)
        probs[np.arange(len(console)), np.where(console, 0, 2)] += 1 - EPSILON
        return probs

    def decide(
        self, state: dict[str, Any], who: Int64Array, actions: Int64Array, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Minutes of fun, and skill."""
        fun = PAYS[actions] + 0.15 * np.tanh(state["skill"][who]) + 0.2 * rng.normal(size=len(who))
        state["skill"][who] = np.clip(0.85 * state["skill"][who] + TEACHES[actions], -2, 2)
        return {"reward": np.round(fun, 4)}

    def comes_back(self, state: dict[str, Any], who: Int64Array, rng: np.random.Generator) -> BoolArray:
        """Skilled players stay."""
        chance: Float64Array = 1 / (1 + np.exp(-0.6 - 1.2 * state["skill"][who]))
        return rng.random(len(who)) < chance

    def pause(self, n: int, rng: np.random.Generator) -> Float64Array:
        """About two days."""
        return 0.5 + rng.exponential(1.5, n)

    def visit_length(self, n: int, rng: np.random.Generator) -> Int64Array:
        """One round."""
        return np.ones(n, dtype=np.int64)

    def write(self, rows: pl.DataFrame, folder: Path, rng: np.random.Generator) -> None:
        """Lines as the service writes them, in order of time."""
        table = rows.with_columns(ts=timestamps(rows).dt.strftime("%Y-%m-%dT%H:%M:%S.%6fZ")).sort("ts")
        probs = self.behaviour(table, None)
        with (folder / self.log).open("w", encoding="utf-8") as stream:
            for number, row in enumerate(table.iter_rows(named=True)):
                stream.write(json.dumps(self._event(number, row, probs[number])) + "\n")

    def _event(self, number: int, row: dict[str, Any], probs: Float64Array) -> dict[str, Any]:
        chosen = self.items.index(row["action"])
        order = [chosen, *(i for i in range(3) if i != chosen)]
        return {
            "_label_cost": -row["reward"],
            "_label_probability": float(probs[chosen]),
            "_label_Action": chosen + 1,
            "_labelIndex": chosen,
            "Timestamp": row["ts"],
            "EventId": f"e{number}",
            "a": [i + 1 for i in order],
            "p": [float(probs[i]) for i in order],
            "c": {
                "Player": {
                    "id": f"p{row['user']}",
                    "skill": row["Player.skill"],
                    "platform": row["Player.platform"],
                },
                "_multi": [{"_tag": item} for item in self.items],
            },
        }
