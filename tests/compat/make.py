"""Write the compatibility fixtures: one file or folder of every format, as the installed version writes it.

Run once per release, from a checkout of that release, and commit what it writes:

    python -m tests.compat.make tests/compat/v0_1
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shpi
from shpi.data.actions import ActionSpace
from shpi.data.schema import ContextSchema, Feature
from shpi.data.shards import prepare_shards
from shpi.envs.fitted.model import WorldModel
from shpi.features import Chain, RandomFourier, Standardise
from shpi.learners import ContextualBandit
from shpi.oracles import Gbdt
from shpi.policies import EpsilonGreedy, Greedy, LinearScorer, Mixture, UniformPolicy
from shpi.testing.tastes import Tastes
from shpi.values import LSTD, save_value

CONTEXTS = np.array([[0.5, -1.0], [1.0, 0.25], [-2.0, 0.0], [0.0, 0.0], [3.0, 3.0]])
SCHEMA = ContextSchema(features=(Feature(name="a"), Feature(name="b", missing="zero")))
ACTIONS = ActionSpace(ids=("x", "y", "z"))


def policies() -> dict[str, Any]:
    """One policy with nested parts, one that a learner made, one of trees."""
    random = np.random.default_rng(0)
    phi = Chain((Standardise(), RandomFourier(n_features=10))).fit(random.normal(size=(30, 2)))
    nested = Mixture(
        [EpsilonGreedy(LinearScorer(random.normal(size=(3, phi.width)), phi), 0.1), UniformPolicy(3)],
        [0.3, 0.7],
    )
    logs = Tastes().log(60, seed=0)
    trees = Gbdt(trees=5, leaves=4, min_rows=5).prepare(logs, seed=0).fit(np.asarray(logs.rewards))
    return {"nested": nested, "bandit": ContextualBandit().fit(logs), "trees": Greedy(trees)}


def table() -> pl.DataFrame:
    """Forty decisions of ten users, with a category, a missing number and text actions."""
    random = np.random.default_rng(1)
    return pl.DataFrame(
        {
            "uid": np.repeat(np.arange(10), 4),
            "ts": np.tile(np.arange(4) * 100, 10),
            "item": random.choice(["x", "y", "z"], 40),
            "p": np.full(40, 1 / 3),
            "r": random.integers(0, 2, 40).astype(float),
            "a": random.normal(size=40).round(3),
            "c": random.choice(["red", "blue"], 40),
        }
    )


def main(folder: Path) -> None:
    """Write every fixture, and what it must say when it is read again."""
    folder.mkdir(parents=True, exist_ok=True)
    made = policies()
    for name, policy in made.items():
        policy.save(
            folder / f"policy-{name}",
            **(
                {"schema": SCHEMA, "actions": ACTIONS, "notes": {"origin": "fixture"}}
                if name == "nested"
                else {}
            ),
        )
    columns = shpi.Columns(
        user="uid", time="ts", time_unit="s", action="item", propensity="p", reward="r", context=("a", "c")
    )
    logs = shpi.LoggedData.read(table(), columns)
    logs.to_parquet(folder / "log.parquet")
    prepare_shards(table(), columns, folder / "shards", shards=2)
    value = LSTD().fit(logs, gamma=0.9, seed=0)
    save_value(value, folder / "value.npz")
    world = WorldModel().fit(Tastes().log(60, seed=0), seed=0)
    world.save(folder / "world")
    expected = {
        "probs": {name: policy.action_probs(CONTEXTS).tolist() for name, policy in made.items()},
        "log": logs.fingerprint(),
        "rows": len(logs),
        "values": value(logs.contexts[:5]).tolist(),
        "world": {"n_actions": world.n_actions, "horizon": world.horizon},
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
