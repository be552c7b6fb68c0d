"""SHPI, SPIBB and a bandit on kinds of worlds that nothing was chosen on: chains, grids, traps, many states.

Attained shares of what is possible over mu, with 200 and with 5,000 users; how many results are below mu by
more than 1 % of it; and whether SHPI's lower bounds hold. SHPI_TEXTBOOK_LOGS sets the number of logs of each
kind.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from benchmarks.parallel import each
from benchmarks.report import Row
from benchmarks.worlds.textbook import KINDS, TextbookWorld
from shpi.learners import SPIBB, ContextualBandit, OfflineSHPI

LOGS = int(os.environ.get("SHPI_TEXTBOOK_LOGS", "30"))
FIRST_SEED, SIZES = 60_000, (200, 5_000)
METHODS = ("shpi", "spibb", "bandit")


class Trial(NamedTuple):
    """One log."""

    kind: str
    users: int
    seed: int


class Outcome(NamedTuple):
    """Attained shares on it."""

    trial: Trial
    shpi: float
    spibb: float
    bandit: float
    held: bool  # whether SHPI's lower bound is below the true lift


def attained(trial: Trial) -> Outcome:
    """All methods on one log."""
    world = TextbookWorld(name=trial.kind, users=trial.users, kind=trial.kind)
    case, logs = world.case(trial.seed), world.make_log(trial.seed)
    gamma = case.mdp.gamma
    learned = OfflineSHPI(gamma=gamma, seed=trial.seed, progress=False).fit(logs)
    rivals = SPIBB(gamma=gamma, seed=trial.seed).fit(logs), ContextualBandit().fit(logs)
    lift = case.value(case.table_of(learned)) - case.value(case.mu)
    assert learned.lift is not None
    shpi, spibb, bandit = (world.headline(policy, trial.seed) for policy in (learned, *rivals))
    return Outcome(trial, shpi, spibb, bandit, lift >= learned.lift.lower - 1e-9)


def run() -> list[Row]:
    trials = [Trial(kind, users, FIRST_SEED + i) for users in SIZES for kind in KINDS for i in range(LOGS)]
    outcomes = each(attained, trials, "textbook")
    held = [outcome.held for outcome in outcomes]
    rows = [Row("bounds that hold", float(np.mean(held)), "share", f"{sum(held)} of {len(held)}", ">= 0.93")]
    for users in SIZES:
        for kind in (*KINDS, ""):
            some = [o for o in outcomes if o.trial.users == users and o.trial.kind.startswith(kind)]
            rows += [_row(f"{kind or 'all four'}, {users:,} users", method, some) for method in METHODS]
    return rows


def _row(name: str, method: str, outcomes: list[Outcome]) -> Row:
    shares = np.array([getattr(outcome, method) for outcome in outcomes])
    error = shares.std(ddof=1) / np.sqrt(len(shares))
    worse = f"± {error:.3f}, {int((shares < -0.01).sum())} of {len(shares)} below mu"
    return Row(f"{name}: {method}", float(shares.mean()), "share", worse)
