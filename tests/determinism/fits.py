"""Hashes of a sample of fits and evaluations, to compare two versions of the sources bit by bit.

    python -m tests.determinism.fits > before.json      (old sources first on PYTHONPATH)
    python -m tests.determinism.fits before.json        (new sources: exit code 1 where a hash differs)

A change that only moves or merges code changes none of them. They hold on one machine and for one number of
threads (OMP_NUM_THREADS): another processor or another version of numpy rounds otherwise.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import shpi
from shpi.envs import make
from shpi.envs.rollout import rollout
from shpi.learners import registry
from shpi.policies import UniformPolicy
from shpi.values import LSTD, Pessimistic, ValueModel

QUICK: dict[str, dict[str, Any]] = {
    "bcq": {"steps": 150},
    "cql": {"steps": 150},
    "cb-mf": {"epochs": 3},
    "nn-ips": {"epochs": 3},
    "shpi-paper": {"iterations": 2},
    "shpi-repaired": {"iterations": 2},
}
WORLDS: dict[str, dict[str, Any]] = {"storefront": {}, "synthetic": {"horizon": 15}}
USERS = 150
LEFT_OUT = {"best", "bandit-vw", "shpi-released"}  # slow, or made for windows of 30 decisions


def digest(*arrays: Any) -> str:
    """A short hash of the bytes of arrays."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()[:16]


def logs_of(world: str) -> shpi.LoggedData:
    """A small log of a uniform policy."""
    simulator = make(world, **WORLDS[world])
    return rollout(simulator, UniformPolicy(simulator.n_actions), USERS, seed=1)


def hashes() -> dict[str, str]:
    """The name of a fit or an evaluation -> its hash."""
    results = {}
    for world in WORLDS:
        logs = logs_of(world)
        train, held_out = logs.split_users(0.3, seed=0)
        for name in registry.names("offline"):
            if registry.missing(name) is not None or name in LEFT_OUT:
                continue
            options = {
                key: value for key, value in QUICK.get(name, {}).items() if key in registry.parameters(name)
            }
            learner: Any = registry.make(name, seed=3, **options)
            policy = learner.fit(train)
            results[f"{world} {name}"] = digest(policy.action_probs(held_out.contexts[:500]))
            if name in {"shpi", "bandit"}:
                evaluation = shpi.evaluate(policy, held_out, gate=shpi.Gate(), seed=0)
                numbers = [(e.value, e.lift, e.lift_interval.lower) for e in evaluation.estimates]
                results[f"{world} {name} evaluated"] = digest(np.asarray(numbers), str(evaluation).encode())
        models: dict[str, ValueModel] = {"LSTD": LSTD(), "pessimistic": Pessimistic(base=LSTD())}
        for name, model in models.items():
            results[f"{world} {name}"] = digest(model.fit(train, gamma=0.95, seed=0)(held_out.contexts))
    return results


def main(before: str | None) -> int:
    """Print the hashes, or compare them with those of a file."""
    current = hashes()
    if before is None:
        print(json.dumps(current, indent=1))
        return 0
    known = json.loads(Path(before).read_text())
    differing = [
        name for name in sorted(known.keys() | current.keys()) if known.get(name) != current.get(name)
    ]
    print(f"{len(current)} hashes, {len(differing)} differ", *differing, sep="\n  ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
