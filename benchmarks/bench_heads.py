"""What acts on one f is worth: bounded ratios, mu's favourite action, f's best among the likely ones.

The rules of `shpi.learners.sharper` on logs of the paper's size, seeds from 100. Every policy has the f of
the round that OfflineSHPI chose, and is tried on 200 new users; "taken" is what it returned. The clone and
its favourites are what is left where nothing can be shown.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.report import Row
from benchmarks.trial import Trial
from shpi.learners import OfflineSHPI
from shpi.learners.cloning import distance_to_mu
from shpi.learners.improved import ImprovedPolicy
from shpi.learners.sharper import FAVOURITE, UNPROVEN
from shpi.policies import AmongLikely, BoundedRatio, Policy

LOGS = (("synthetic", 2000), ("recogym", 2000), ("hiv", 5000))
SEEDS, EPSILON, NEW_USERS = (100, 101, 102), 0.3, 200


def run() -> list[Row]:
    return [row for world, users in LOGS for seed in SEEDS for row in compared(world, users, seed)]


def compared(world: str, users: int, seed: int) -> Iterator[Row]:
    """The mean returns of mu, of its clone, and of every head."""
    trial = Trial.of(world, EPSILON, users, seed)
    found = OfflineSHPI(progress=False, seed=seed).fit(trial.logs)
    bounded = bounded_of(found)
    label = f"{world}, seed {seed}"
    yield Row(f"{label}: the clone above mu's loss", distance_to_mu(bounded.mu, trial.logs), "nats")
    policies: dict[str, Policy] = {
        "mu": trial.mu,
        "taken": found,
        "bounded ratios": bounded,
        "mu's favourite": AmongLikely(bounded.scorer, bounded.mu, FAVOURITE),
        "best of the likely": AmongLikely(bounded.scorer, bounded.mu, UNPROVEN),
        "clone": bounded.mu,
    }
    for name, policy in policies.items():
        yield Row(f"{label}: {name}", trial.tried(policy, NEW_USERS), "return")


def bounded_of(found: ImprovedPolicy) -> BoundedRatio:
    """The policy of the chosen round, or of the last one."""
    policy = found.history[found.chosen - 1].policy
    assert isinstance(policy, BoundedRatio)
    return policy
