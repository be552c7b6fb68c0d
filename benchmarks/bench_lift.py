"""Does the stated lower bound of the lift hold? Small logs of every world, null worlds included.

The truth is exact in finite and null worlds; elsewhere it is measured on new users, the same for mu and for
the policy, and ``beyond doubt`` counts the bounds that the truth misses by more than two of its own standard
errors. Logs of the paper's simulators are truncated: the lift is measured up to the end of the log, and again
until discounted rewards are negligible. SHPI_LIFT_LOGS sets the number of logs per world.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from benchmarks.lift_trial import LiftTrial, LogCase, lift_trial
from benchmarks.parallel import each
from benchmarks.report import Row
from benchmarks.worlds import LOGS, NULLS
from benchmarks.worlds.base import Lift

LOGS_PER_WORLD = int(os.environ.get("SHPI_LIFT_LOGS", "16"))
FIRST_SEED = 20_000
LEAST = 0.93  # share of the bounds that must hold
SMALLER = {  # users of worlds that are slow at their usual size
    "finite-a-5000": 1_000,
    "finite-b-5000": 1_000,
    "finite-c-5000": 1_000,
    "finite-d-5000": 1_000,
    "wide-3000": 1_000,
    "storefront-uniform": 300,
    "storefront-0.3": 300,
    "synthetic-0.3": 200,
    "synthetic-0": 200,
    "synthetic-1": 200,
    "synthetic-large-0.3": 150,
    "recogym-0.3": 200,
    "hiv-0.3": 200,
    "hiv-1": 200,
    "kuairand-0.3": 1_000,
}

Which = Callable[[LiftTrial], Lift]


def cases(logs_per_world: int = LOGS_PER_WORLD) -> list[LogCase]:
    """The logs of all worlds; KuaiRand's only if its files are available."""
    worlds = [world for world in LOGS if "SHPI_DATA" in os.environ or not world.name.startswith("kuairand")]
    seeds = range(FIRST_SEED, FIRST_SEED + logs_per_world)
    return [LogCase(w.name, seed, SMALLER.get(w.name)) for w in (*worlds, *NULLS) for seed in seeds]


def run(*, logs_per_world: int = LOGS_PER_WORLD) -> list[Row]:
    trials = each(lift_trial, cases(logs_per_world), "lift")
    if any(trial.lower is None for trial in trials):
        return [Row("bound held", float("nan"), "share", "the policies of this version state no lift")]
    rows = [
        Row("bound held, all worlds", _held(trials, _lift), "share", _note(trials), f">= {LEAST}"),
        Row("bound held beyond doubt", _held(trials, _lift, 2.0), "share", "two errors of the truth granted"),
        Row("bound held for users who go on", _held(trials, _lasting), "share", "not cut off with the log"),
    ]
    for name in dict.fromkeys(trial.case.world for trial in trials):
        some = [trial for trial in trials if trial.case.world == name]
        rows.append(Row(f"bound held, {name}", _held(some, _lift), "share", _note(some)))
    return rows


def _lift(trial: LiftTrial) -> Lift:
    return trial.lift


def _lasting(trial: LiftTrial) -> Lift:
    return trial.lasting


def _held(trials: list[LiftTrial], which: Which, doubt: float = 0.0) -> float:
    """The share of trials in which the bound holds: the truth is not below it."""
    held = 0
    for trial in trials:
        assert trial.lower is not None
        truth = which(trial)
        held += truth.value + doubt * truth.error + trial.tolerance >= trial.lower
    return held / len(trials)


def _note(trials: list[LiftTrial]) -> str:
    """The stated and the true lift, in shares of the true lift where that is meaningful."""
    true = sum(trial.lift.value for trial in trials) / len(trials)
    stated = sum(trial.estimate or 0.0 for trial in trials) / len(trials)
    lower = sum(trial.lower or 0.0 for trial in trials) / len(trials)
    proven = sum(trial.proven for trial in trials)
    sizes = f"{len(trials)} logs, proven {proven}"
    if len({trial.case.world for trial in trials}) > 1:
        return sizes
    return f"{sizes}; mean lift {true:.3g}, stated {stated:.3g}, bound {lower:.3g}"
