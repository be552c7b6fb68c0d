"""CPU seconds of `evaluate` with its gate, against another version of shpi on the same logs.

    git worktree add --detach ../before aaac9fb          # version 0.1
    SHPI_BEFORE=../before python -m benchmarks evaluate_cost

Both versions make the logs themselves, alternately and in their own processes: a busy machine slows both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.report import Row

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 2
# Runs under either version, so it uses only what both have.
CODE = """
import json, time
import numpy as np
from shpi.envs import RecoGym, Synthetic
from shpi.envs.logging import LoggingPolicy
from shpi.envs.rollout import rollout
from shpi.envs.storefront import Storefront
from shpi.features import Identity
from shpi.ope import Gate, evaluate
from shpi.policies import LinearScorer, Softmax, UniformPolicy

shop, seconds = Storefront(), {}
logs = {
    "storefront, 2,000 users": shop.rollout(UniformPolicy(shop.n_actions), 2000, seed=0),
    "storefront, 20,000 users": shop.rollout(UniformPolicy(shop.n_actions), 20000, seed=0),
    "synthetic, 1,000 users": rollout(Synthetic(), LoggingPolicy(Synthetic(), 1.0), 1000, 0, progress=None),
    "RecoGym, 500 users": rollout(RecoGym(), LoggingPolicy(RecoGym(), 0.3), 500, 0, progress=None),
}
for name, log in logs.items():
    features = Identity().fit(log.contexts[:100])
    weights = 0.1 * np.random.default_rng(1).standard_normal((log.n_actions, log.contexts.shape[1] + 1))
    policy = Softmax(LinearScorer(weights, features), 1.0)
    began = time.process_time()
    evaluate(policy, log, gate=Gate())
    seconds[name] = time.process_time() - began
print(json.dumps(seconds))
"""


def run() -> list[Row]:
    """The ratio for each log; no rows without a version to compare with."""
    before = os.environ.get("SHPI_BEFORE")
    if before is None:
        print("SHPI_BEFORE names a checkout of the version to compare with", file=sys.stderr)
        return []
    rounds = [(_seconds(Path(before)), _seconds(ROOT)) for _ in range(ROUNDS)]
    rows = []
    for name in rounds[0][0]:
        old, new = (min(turn[which][name] for turn in rounds) for which in (0, 1))
        rows.append(Row(f"{name}: CPU time", new / old, "times", f"{old:.2f} s, now {new:.2f} s", "<= 1.3"))
    return rows


def _seconds(checkout: Path) -> dict[str, float]:
    environment = os.environ | {"PYTHONPATH": str(checkout.resolve() / "src")}
    ended = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
    )
    seconds: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return seconds
