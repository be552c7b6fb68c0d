"""What must come out the same whatever the threads, the hash seed and the order of rows: prints JSON.

python -m tests.determinism.work [shuffle]
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl

import shpi
from shpi.features import Chain, RandomFourier, Standardise
from shpi.learners import registry
from shpi.policies import read_policy_file, save_policy
from shpi.values import LSTD

LEARNERS = {
    "spibb": {"features": Chain((Standardise(), RandomFourier(n_features=150))), "iterations": 10},
    "mbs": {"features": Chain((Standardise(), RandomFourier(n_features=150))), "iterations": 10},
    "bandit": {},
    "clone": {},
    "shpi-paper": {"iterations": 2, "value": "lstd"},
}
if find_spec("torch") is None:
    del LEARNERS["shpi-paper"]


def table(users: int = 1500, seed: int = 0) -> pl.DataFrame:
    """A log with a missing number, a category and text ids, large enough for an engine to use threads."""
    random = np.random.default_rng(seed)
    n = 4 * users
    x = random.normal(size=(n, 4))
    x[random.random(n) < 0.1, 0] = np.nan
    columns: dict[str, object] = {f"x{j}": x[:, j] for j in range(4)}
    columns |= {
        "uid": [f"user {i:05d}" for i in np.repeat(np.arange(users), 4)],
        "ts": np.tile(np.arange(4) * 100, users),
        "item": random.choice(["a", "b", "c"], n),
        "p": np.full(n, 1 / 3),
        "r": random.random(n),
        "colour": random.choice(["red", "green", "blue"], n),
    }
    return pl.DataFrame(columns)


def main(shuffle: bool) -> None:
    """Read, learn, judge and write; print what came of it."""
    frame = table()
    if shuffle:
        frame = frame.sample(fraction=1.0, shuffle=True, seed=3)
    columns = shpi.Columns(
        user="uid",
        time="ts",
        time_unit="s",
        action="item",
        propensity="p",
        reward="r",
        context=("x*", "colour"),
        missing={"x0": "mean"},
    )
    logs = shpi.LoggedData.read(frame, columns)
    found = {"log": logs.fingerprint(), "schema": json.dumps(logs.schema.to_json())}
    with tempfile.TemporaryDirectory() as folder:
        for name, options in LEARNERS.items():
            policy = registry.make(name, **options).fit(logs)  # type: ignore[arg-type]
            place = save_policy(policy, Path(folder) / name)
            found[name] = read_policy_file(place).sha256
        value = LSTD().fit(logs, gamma=0.9, seed=0)
        found["value"] = value(logs.contexts[:50]).tobytes().hex()[:64]
        evaluation = shpi.evaluate(policy, logs)
        found["evaluation"] = repr(evaluation[evaluation.main].lift)
    print(json.dumps(found))


if __name__ == "__main__":
    main("shuffle" in sys.argv[1:])
