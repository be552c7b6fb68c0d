"""Logs that are small or degenerate: `evaluate` and `fit` answer, or refuse with a remedy."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shpi
from tests.fuzz.attempt import attempt


def small_log(chance: random.Random) -> tuple[pl.DataFrame, dict[str, Any]]:
    """A few users, decisions, actions and context columns; rewards that are odd in one of many ways."""
    rng = np.random.default_rng(chance.randrange(2**32))
    users, actions = chance.choice([1, 2, 3, 5, 9, 30]), chance.choice([1, 2, 3, 7])
    lengths = rng.integers(1, chance.choice([2, 3, 12]), size=users)
    n, width = int(lengths.sum()), chance.choice([0, 0, 1, 2])
    taken = rng.integers(actions, size=n)
    rewards = chance.choice(
        [
            np.zeros(n), np.full(n, 2.5), np.full(n, -1e9), rng.standard_normal(n), rng.lognormal(0, 3, n),
            (rng.random(n) < 0.05).astype(float), 1e12 + rng.standard_normal(n),
            1e-12 * rng.standard_normal(n),
            (taken == 0).astype(float), 1e150 * rng.standard_normal(n),
            1e29 * rng.standard_normal(n), -1e-300 * rng.random(n),
        ]
    )  # fmt: skip
    frame: dict[str, Any] = {
        "uid": np.repeat(np.arange(users), lengths),
        "ts": np.concatenate([np.arange(length) for length in lengths]),
        "item": taken,
        "p": np.full(n, 1 / actions),
        "r": rewards,
    }
    for column in range(width):
        constant, spread = chance.choice([(0.0, 1.0), (5.0, 0.0), (1e6, 1.0), (0.0, 1e-9)])
        frame[f"x{column}"] = constant + spread * rng.standard_normal(n)
    columns: dict[str, Any] = {"user": "uid", "time": "ts", "action": "item", "reward": "r"}
    columns["context"] = [f"x{column}" for column in range(width)]
    if chance.random() < 0.85:
        columns["propensity"] = "p"
    if chance.random() < 0.5:
        gone = np.zeros(n, dtype=bool)
        gone[np.cumsum(lengths) - 1] = rng.random(users) < chance.choice([0.5, 1.0])
        frame["gone"], columns["terminated"] = gone, "gone"
    return pl.DataFrame(frame), columns


def evaluate_small(chance: random.Random, folder: Path) -> str:
    """Evaluate a policy on a small log; every number that is given is a number."""
    frame, columns = small_log(chance)
    outcome, logs = attempt(lambda: shpi.LoggedData.read(frame, columns))
    if logs is None:
        return outcome
    weights = np.random.default_rng(chance.randrange(2**32)).dirichlet(np.ones(logs.n_actions))
    policy = Constant(weights if chance.random() < 0.8 else np.eye(logs.n_actions)[0], logs.schema.width)
    gate = shpi.Gate() if chance.random() < 0.5 else None
    outcome, report = attempt(lambda: shpi.evaluate(policy, logs, gate=gate))
    if report is not None:
        assert all(
            np.isfinite(estimate.value) and np.isfinite(estimate.lift) for estimate in report.estimates
        )
        str(report)
        report.write_html(folder / "report.html")
        assert report.verdict is None or not report.verdict.ship or logs.n_users >= 10
    return outcome


def fit_small(chance: random.Random, folder: Path) -> str:
    """Learn from a small log; what is returned is mu, or proven, or from enough users."""
    frame, columns = small_log(chance)
    outcome, logs = attempt(lambda: shpi.LoggedData.read(frame, columns))
    if logs is None:
        return outcome
    outcome, policy = attempt(lambda: shpi.OfflineSHPI(progress=False).fit(logs))
    if policy is not None:
        probs = policy.action_probs(logs.contexts)
        assert np.allclose(probs.sum(axis=1), 1)
        assert policy.proven or policy.chosen == 0 or logs.n_users >= 10
        attempt(lambda: policy.save(folder / "policy", overwrite=True))
    return outcome


class Constant:
    """The same probabilities in every context."""

    def __init__(self, probs: Any, width: int) -> None:
        self.probs, self.width, self.n_actions = probs, width, len(probs)

    def action_probs(self, contexts: Any, candidates: Any = None) -> Any:
        return np.tile(self.probs, (len(contexts), 1))
