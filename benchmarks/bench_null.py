"""Nothing to gain: rewards that do not depend on actions, and worlds where mu is optimal.

*Proven wrongly*: the returned policy claims to be better than mu, and is not. *Harmful*: it is worse than mu
by more than 1 % of the attainable; in worlds where mu is optimal that is the distance from mu to the worst
policy, and if actions make no difference, no harm is possible. *Left without cause*: another policy than mu
is returned, proven or not. SHPI_NULL_LOGS sets the number of logs per kind, SHPI_NULL_KINDS prefixes of the
names of kinds, SHPI_WORKERS the number of processes.
"""

from __future__ import annotations

import os

from benchmarks.lift_trial import LiftTrial, LogCase, lift_trial
from benchmarks.parallel import each
from benchmarks.report import Row
from benchmarks.worlds import NULLS

LOGS_PER_KIND = int(os.environ.get("SHPI_NULL_LOGS", "66"))
KINDS = tuple(os.environ.get("SHPI_NULL_KINDS", "null").split(","))
FIRST_SEED = 10_000
MOST = 0.05  # largest share of wrong proofs, and of harmful policies


def run(*, logs_per_kind: int = LOGS_PER_KIND, kinds: tuple[str, ...] = KINDS) -> list[Row]:
    names = [world.name for world in NULLS if world.name.startswith(kinds)]
    seeds = range(FIRST_SEED, FIRST_SEED + logs_per_kind)
    trials = each(lift_trial, [LogCase(name, seed) for name in names for seed in seeds], "null")
    overall = [
        Row("proven wrongly, all kinds", _share(trials, "proven"), "share", _note(trials), f"<= {MOST}"),
        Row(
            "left without cause, all kinds",
            _share(trials, "left"),
            "share",
            _note(trials, "left"),
            f"<= {MOST}",
        ),
        Row("harmful, all kinds", _share(trials, "harmful"), "share", _harm_note(trials), f"<= {MOST}"),
    ]
    for name in names:
        some = [trial for trial in trials if trial.case.world == name]
        overall.append(Row(f"proven wrongly, {name}", _share(some, "proven"), "share", _note(some)))
        if name.startswith("null-hidden"):
            overall.append(Row(f"left, {name}", _share(some, "left"), "share", _note(some, "left")))
        if any(trial.attainable is not None for trial in some):
            overall.append(Row(f"harmful, {name}", _share(some, "harmful"), "share", _harm_note(some)))
    return overall


def _share(trials: list[LiftTrial], what: str) -> float:
    """The share of trials that went wrong, among those that could."""
    could = trials if what != "harmful" else [trial for trial in trials if trial.attainable is not None]
    return sum(getattr(trial, what) for trial in could) / len(could) if could else 0.0


def _note(trials: list[LiftTrial], what: str = "proven") -> str:
    seconds = sum(trial.seconds for trial in trials) / len(trials)
    return f"{sum(getattr(trial, what) for trial in trials)} of {len(trials)} logs, {seconds:.1f} CPU-s each"


def _harm_note(trials: list[LiftTrial]) -> str:
    losses = [-t.lift.value / t.attainable for t in trials if t.attainable is not None]
    if not losses:
        return "no log in which harm can be done"
    harmed = sum(trial.harmful for trial in trials)
    return f"{harmed} of {len(losses)} logs where it matters, {len(trials)} in all; worst {max(losses):.1%}"
