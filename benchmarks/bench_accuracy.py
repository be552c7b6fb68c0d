"""How large is each estimator's error? The k-step SHPI estimator against others, on logs of four worlds.

Writes docs/ope-accuracy.md. The worlds are those of bench_gate. Policies are mixtures of mu with a better
policy, at increasing distance from mu. The true lift comes from rollouts of many users with the same random
numbers under both policies. About five minutes of CPU time for 30 logs per world.

Environment: SHPI_ACCURACY_LOGS, SHPI_ACCURACY_FIRST (the first seed), SHPI_ACCURACY_WORLDS,
SHPI_ACCURACY_PAGE. KuaiRand's files are looked for as in bench_world; without them its rows are left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_gate import WORLDS, World
from benchmarks.report import Row
from shpi.errors import ShpiError
from shpi.ope import (
    DR,
    FQE,
    MAGIC,
    MIS,
    PDIS,
    SLOPE,
    SNPDIS,
    WDR,
    Estimator,
    KStepSHPI,
    Problem,
    Settings,
)
from shpi.policies import Mixture

LOGS = int(os.environ.get("SHPI_ACCURACY_LOGS", "30"))
FIRST = int(os.environ.get("SHPI_ACCURACY_FIRST", "0"))
CHOSEN = os.environ.get("SHPI_ACCURACY_WORLDS", ",".join(WORLDS)).split(",")
DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = Path(os.environ.get("SHPI_ACCURACY_PAGE", DOCS / "ope-accuracy.md"))
SHARES = (0.1, 0.3, 0.6)  # shares of the better policy in the mixture
HORIZONS = {"Synthetic": 30}  # longer than the gate's, so that k matters
TRUTH = 16  # users for the truth, in multiples of bench_gate's, where only the sign matters
CLEAR = 2.0  # a paired difference of squared errors is clear beyond this many standard errors
OURS = ("SHPI(k=1)", "SHPI(k=4)", "SHPI(k=session)", "SHPI(auto)")


def estimators() -> list[Estimator]:
    """All estimators, the k-step ones first; "auto" is SLOPE over k = H .. 1."""
    ours: list[Estimator] = [KStepSHPI(k=1), KStepSHPI(k=4), KStepSHPI(), SLOPE(name="SHPI(auto)")]
    return [*ours, PDIS(), SNPDIS(), DR(), WDR(), FQE(), MAGIC(), MIS()]


@dataclass(frozen=True, kw_only=True, eq=False)
class Errors:
    """Measurements of one policy in one world."""

    share: float
    lift: float  # true lift
    lift_error: float  # its standard error, from the rollouts
    weight: float  # largest ratio pi/mu of a decision in the first log
    found: dict[str, Any]  # by estimator: its lift in each log [logs], NaN if it had no answer

    def rmse(self, name: str) -> float:
        """The root of the mean squared error, over the logs with an answer."""
        return float(np.sqrt(np.nanmean((self.found[name] - self.lift) ** 2)))

    def beats(self, name: str, other: str) -> bool:
        """Whether the squared errors of the first estimator are clearly smaller, paired by log."""
        gain = (self.found[other] - self.lift) ** 2 - (self.found[name] - self.lift) ** 2
        gain = gain[np.isfinite(gain)]
        return len(gain) > 2 and bool(gain.mean() > CLEAR * gain.std(ddof=1) / np.sqrt(len(gain)))


# ---------------------------------------------------------------------- measuring


def measure(world: World) -> list[Errors]:
    """Measure all policies of a world on the same logs."""
    logs = [world.log(10_000 + FIRST + number, world.users) for number in range(LOGS)]
    better = world.good(np.random.default_rng(FIRST))
    measured = []
    for share in SHARES:
        policy = Mixture([world.mu, better], [1 - share, share])
        gain = world.returns(policy) - world.own
        lifts_of: dict[str, list[float]] = {}
        weight = 1.0
        for number, log in enumerate(logs):
            problem = Problem.of(policy, log, Settings(truncated=world.truncated, seed=number))
            if number == 0:
                weight = float(np.exp(next(problem.chunks()).log_ratios.max()))
            for estimator in estimators():
                lifts_of.setdefault(estimator.name, []).append(_lift(estimator, problem))
        measured.append(
            Errors(
                share=share,
                lift=float(gain.mean()),
                lift_error=float(gain.std() / np.sqrt(len(gain))),
                weight=weight,
                found={name: np.array(lifts) for name, lifts in lifts_of.items()},
            )
        )
        print(f"{world.name}, share {share}: done", file=sys.stderr)
    return measured


def _lift(estimator: Estimator, problem: Problem) -> float:
    try:
        return estimator.estimate(problem).lift
    except ShpiError:
        return float("nan")


def worlds() -> list[World]:
    """The chosen worlds whose data are available."""
    chosen = [WORLDS[name]() for name in CHOSEN]
    return [
        replace(world, horizon=HORIZONS.get(world.name, world.horizon), truth_users=TRUTH * world.truth_users)
        for world in chosen
        if world is not None
    ]


# ---------------------------------------------------------------------- the page


def run() -> list[Row]:
    """Measure, write the page, and return the errors of the k-step estimator and of its best rival."""
    by_world = [(world, measure(world)) for world in worlds()]
    draft = PAGE.with_name(f".{PAGE.name}.part")
    draft.write_text(page(by_world), encoding="utf-8")
    draft.replace(PAGE)
    rows = []
    for world, measured in by_world:
        for errors in measured:
            for name in ("SHPI(auto)", _best(errors, ours=False)):
                note = f"lift {errors.lift:.4g}, share {errors.share:g}"
                rows.append(
                    Row(f"{world.name}: {name}", 100 * errors.rmse(name) / abs(errors.lift), "%", note)
                )
    return rows


HEAD = """# Accuracy of the estimators

Written by `python -m benchmarks accuracy`; {logs} logs per world, the same for all estimators and policies.
A policy is mu mixed with a better one; the share of the better one is how far it is from mu. The true lift
comes from rollouts (same users and random numbers under both policies). Cells: root of the mean squared error
of the lift, in percent of the true lift, and in brackets the bias. The best of a column is bold. SHPI(auto)
is SLOPE over k = H, …, 4, 2, 1. "Clearly" means that the squared errors differ by more than {clear:g}
standard errors, log by log. A root mean square over {logs} logs is itself uncertain by about {noise:.0%}. Of
the four k the best one is named in hindsight, which favours the k-step estimator.
"""


def page(by_world: Sequence[tuple[World, list[Errors]]]) -> str:
    """The document."""
    parts = [HEAD.format(logs=LOGS, clear=CLEAR, noise=(2 * LOGS) ** -0.5), "## In one sentence each\n"]
    parts.append(
        "\n".join(f"* **{world.name}**: {sentence(measured)}" for world, measured in by_world) + "\n"
    )
    for world, measured in by_world:
        parts.append(f"## {world.name}\n\n{_words(world)}, {world.users} users.\n")
        parts.append(_table(measured))
    parts.append(NOTES)
    return "\n".join(parts)


def _words(world: World) -> str:
    """The description of a world from bench_gate, with the horizon of this benchmark."""
    about = world.words.split("; ", 1)[-1]
    return f"At most {world.horizon} decisions, {world.mu.n_actions} actions; {about}"


def sentence(measured: Sequence[Errors]) -> str:
    """A sentence on where the k-step estimator wins, and where it loses."""
    rivals = [name for name in measured[0].found if name not in OURS]
    wins, losses = list[str](), list[str]()
    for errors in measured:
        best, other = _best(errors, ours=True), _best(errors, ours=False)
        beaten = sum(errors.beats(best, name) for name in rivals)
        text = (
            f"at share {errors.share:g} {best} ({_percent(errors, best)}) against {other} "
            f"({_percent(errors, other)}), clearly better than {beaten} of {len(rivals)} rivals"
        )
        (wins if errors.rmse(best) <= errors.rmse(other) else losses).append(text)
    won = "The k-step estimator wins " + "; ".join(wins) if wins else ""
    lost = ("it loses " if wins else "The k-step estimator loses ") + "; ".join(losses) if losses else ""
    return "; ".join(clause for clause in (won, lost) if clause) + "."


def _best(errors: Errors, *, ours: bool) -> str:
    names = [
        name for name in errors.found if (name in OURS) == ours and np.isfinite(errors.found[name]).all()
    ]
    return min(names, key=errors.rmse)


def _percent(errors: Errors, name: str) -> str:
    return f"{100 * errors.rmse(name) / abs(errors.lift):.0f} %"


def _table(measured: Sequence[Errors]) -> str:
    heads = [
        f"share {e.share:g}: lift {e.lift:.4g} ± {e.lift_error:.2g}, pi/mu up to {e.weight:.2g}"
        for e in measured
    ]
    lines = ["| estimator | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    lines += [
        f"| {name} | " + " | ".join(_cell(e, name) for e in measured) + " |" for name in measured[0].found
    ]
    return "\n".join(lines) + "\n"


def _cell(errors: Errors, name: str) -> str:
    known = errors.found[name][np.isfinite(errors.found[name])]
    if not len(known):
        return "no answer"
    bias = 100 * (float(known.mean()) - errors.lift) / abs(errors.lift)
    text = f"{_percent(errors, name)} ({bias:+.0f} %)"
    missing = len(errors.found[name]) - len(known)
    if missing:
        return f"{text}, {missing} logs without an answer"
    return (
        f"**{text}**"
        if name == min((_best(errors, ours=o) for o in (True, False)), key=errors.rmse)
        else text
    )


NOTES = """## What to take from it

* A short k leaves out what pi's earlier decisions change; in Synthetic an action moves the user for good.
* A V with more lookahead did not help there. With 30 decisions and a share of 0.3 (8 logs of other seeds),
  SHPI(k=4) found 36 % of the lift with V from linear backups, 33 % with 5 steps of real rewards before V, and
  29 % with V from whole returns. So V stays as it is: what is missing is behind the window, not in V.
* Truth has an error too: it is in the head of each column.
"""
