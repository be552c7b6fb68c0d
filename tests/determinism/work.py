"""What must come out the same whatever the threads, processes, hash seed and order of rows: prints JSON.

python -m tests.determinism.work [shuffle] [processes]
"""

from __future__ import annotations

import json
import sys
import tempfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl

import shpi
from shpi.data.shards import prepare_shards
from shpi.features import Chain, RandomFourier, Standardise
from shpi.learners import registry
from shpi.ope.results import Estimate
from shpi.passes import Processes, Serial
from shpi.policies import read_policy_file, save_policy
from shpi.protocols import Float64Array
from shpi.values import LSTD

LEARNERS = {
    "spibb": {"features": Chain((Standardise(), RandomFourier(n_features=80))), "iterations": 3},
    "mbs": {"features": Chain((Standardise(), RandomFourier(n_features=80))), "iterations": 3},
    "bandit": {},
    "clone": {},
    "shpi": {},
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


def main(shuffle: bool, processes: bool) -> None:
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
    digests = {"log": logs.fingerprint(), "schema": json.dumps(logs.schema.to_json())}
    with tempfile.TemporaryDirectory() as folder:
        for name, options in LEARNERS.items():
            policy = registry.make(name, **options).fit(logs)  # type: ignore[arg-type]
            place = save_policy(policy, Path(folder) / name)
            digests[name] = read_policy_file(place).sha256
        value = LSTD().fit(logs, gamma=0.9, seed=0)
        digests["value"] = digest(value(logs.contexts))
        shards = prepare_shards(frame, columns, Path(folder) / "shards", shards=5, progress=False)
        executor = Processes(jobs=2) if processes else Serial()
        digests["shards"] = json.dumps([shard.fingerprint() for shard in shards])
        digests["value of shards"] = digest(
            LSTD().fit(shards, gamma=0.9, seed=0, executor=executor)(logs.contexts)
        )
        for source, name in ((logs, "evaluation"), (shards, "evaluation of shards")):
            evaluation = shpi.evaluate(policy, source, details=False)
            digests[name] = repr([numbers(estimate) for estimate in evaluation.estimates])
    print(json.dumps(digests))


def digest(array: Float64Array) -> str:
    """A hash of an array's bytes."""
    return sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def numbers(estimate: Estimate) -> tuple[str, float, float, float, float]:
    """What an estimator says of the lift."""
    interval = estimate.lift_interval
    return estimate.name, estimate.value, estimate.lift, interval.lower, interval.upper


if __name__ == "__main__":
    main("shuffle" in sys.argv[1:], "processes" in sys.argv[1:])
