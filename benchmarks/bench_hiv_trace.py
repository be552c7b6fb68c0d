"""HIV from a uniform log: where BCQ and SHPI differ, decision by decision.

A policy is learned from random treatment and applied to new patients. Every decision records their reward,
and whether their state is outside the support of the log (beyond its range in some dimension). Switching from
one policy to another in time shows which part of a treatment makes the difference. Writes docs/hiv-uniform.md
and its figures. Two CPU-minutes per seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.bench_wins import learner_for
from benchmarks.report import Row
from benchmarks.worlds import by_name
from shpi.experiments._run.worlds import NEW_USERS, logging_policy, world
from shpi.policies import ConstantPolicy
from shpi.protocols import BoolArray, Float64Array, Int64Array, Policy
from shpi.report import svg

SEEDS, PATIENTS, EARLY = range(510, 513), 200, 40
FOLDER = Path(__file__).resolve().parents[1] / "docs"
TREATMENTS = ("none", "reverse transcriptase inhibitor", "protease inhibitor", "both")  # as in DRUGS
MU, AGENT, BCQ, SHPI = "mu: random treatment", "the online agent", "BCQ", "SHPI"
THEN = f"BCQ for {EARLY} decisions, then its most frequent treatment"
BACK = f"BCQ for {EARLY} decisions, then SHPI"
LATE = f"SHPI for {EARLY} decisions, then BCQ"


class Trace(NamedTuple):
    """Actions and rewards of new patients, and whether they are outside the log's range."""

    rewards: Float64Array  # [patients, T]
    actions: Int64Array  # [patients, T]
    outside: BoolArray  # [patients, T]

    @property
    def total(self) -> float:
        """The sum of rewards per patient."""
        return float(self.rewards.sum(axis=1).mean())

    @property
    def leaves(self) -> int | None:
        """The first decision at which half of the patients are outside the log."""
        steps = np.flatnonzero(self.outside.mean(axis=0) >= 0.5)
        return int(steps[0]) + 1 if len(steps) else None


def follow(early: Policy, late: Policy, seed: int, low: Float64Array, high: Float64Array) -> Trace:
    """Follow new patients under one policy for the first decisions and another one afterwards."""
    simulator, draws = world("hiv", {}), np.random.default_rng(seed)
    contexts = np.asarray(simulator.reset(PATIENTS, seed + NEW_USERS))
    rewards, actions, outside = [], [], []
    for step in range(simulator.horizon or 0):
        outside.append(((contexts < low) | (contexts > high)).any(axis=1))
        probs = (early if step < EARLY else late).action_probs(contexts)
        taken = (probs.cumsum(axis=1) > draws.random((PATIENTS, 1))).argmax(axis=1)
        result = simulator.step(taken)
        actions.append(taken)
        rewards.append(result.rewards)
        contexts = np.asarray(result.contexts)
    return Trace(np.stack(rewards, axis=1), np.stack(actions, axis=1), np.stack(outside, axis=1))


def traces(seed: int) -> dict[str, Trace]:
    """All policies on the log of a seed."""
    uniform = by_name("hiv-1")
    logs = uniform.make_log(seed)
    low, high = logs.contexts.min(axis=0), logs.contexts.max(axis=0)
    bcq, shpi = (learner_for(name, uniform, seed).fit(logs) for name in ("bcq", "new"))
    by_policy = {
        MU: follow(uniform.mu(seed), uniform.mu(seed), seed, low, high),
        SHPI: follow(shpi, shpi, seed, low, high),
        BCQ: follow(bcq, bcq, seed, low, high),
    }
    often = int(np.bincount(by_policy[BCQ].actions[:, EARLY:].ravel(), minlength=logs.n_actions).argmax())
    constant = ConstantPolicy(np.eye(logs.n_actions)[often])
    by_policy[THEN] = follow(bcq, constant, seed, low, high)
    by_policy[BACK] = follow(bcq, shpi, seed, low, high)
    by_policy[LATE] = follow(shpi, bcq, seed, low, high)
    agent = logging_policy("hiv", {}, 0.0)
    by_policy[AGENT] = follow(agent, agent, seed, low, high)
    return by_policy


def run() -> list[Row]:
    by_seed = {}
    for seed in SEEDS:
        by_seed[seed] = traces(seed)
        print(
            f"  seed {seed}: " + "; ".join(f"{n} {t.total:.3g}" for n, t in by_seed[seed].items()), flush=True
        )
    first = by_seed[SEEDS[0]]
    svg.write(FOLDER / "figures" / "hiv-rewards.svg", _rewards(first))
    svg.write(FOLDER / "figures" / "hiv-outside.svg", _outside(first))
    (FOLDER / "hiv-uniform.md").write_text(page(by_seed), encoding="utf-8")
    return [
        Row(
            f"{name}, seed {seed}",
            trace.total,
            "sum of rewards",
            f"half outside from decision {trace.leaves}",
        )
        for seed, by_policy in by_seed.items()
        for name, trace in by_policy.items()
    ]


# ---------------------------------------------------------------------- the page


def _rewards(by_policy: Mapping[str, Trace]) -> str:
    series = {name: np.median(by_policy[name].rewards, axis=0) for name in (MU, SHPI, BCQ, AGENT)}
    title = "What a decision earns: median over new patients"
    return _lines(series, title, "reward (logarithmic; what is not positive is left out)", log_y=True)


def _outside(by_policy: Mapping[str, Trace]) -> str:
    series = {name: by_policy[name].outside.mean(axis=0) for name in (MU, SHPI, BCQ, AGENT)}
    title = "Share of the patients whose state is outside everything in the log"
    return _lines(series, title, "share of patients", log_y=False)


def _lines(series: Mapping[str, Float64Array], title: str, y_label: str, *, log_y: bool) -> str:
    """One line per policy over the decisions."""
    return svg.lines(
        np.arange(1.0, len(series[MU]) + 1),
        series,
        title=title,
        description="; ".join(f"{name}: {values[-1]:.3g} at the end" for name, values in series.items()),
        log_y=log_y,
        zero=not log_y,
        x_label="decision",
        y_label=y_label,
    )


def page(by_seed: Mapping[int, Mapping[str, Trace]]) -> str:
    """docs/hiv-uniform.md."""
    names = list(next(iter(by_seed.values())))
    lines = [
        "# HIV from random treatment",
        "",
        "`python -m benchmarks hiv_trace` writes this page. A log of patients under random treatment, seeds "
        f"{min(by_seed)} to {max(by_seed)}; {PATIENTS} new patients follow each policy.",
        "",
        "Sum of rewards per patient, and the decision from which half of the patients are in states outside",
        "everything in the log (beyond its range in some dimension):",
        "",
        "| policy | " + " | ".join(f"seed {seed}" for seed in by_seed) + " |",
        "|---|" + "---|" * len(by_seed),
        *(
            f"| {name} | " + " | ".join(_cell(by_policy[name]) for by_policy in by_seed.values()) + " |"
            for name in names
        ),
        "",
        f"Treatments of BCQ and SHPI, in the first {EARLY} decisions and after them (shares; seed "
        f"{min(by_seed)}):",
        "",
        "| | " + " | ".join(TREATMENTS) + " |",
        "|---|" + "---|" * len(TREATMENTS),
        *(
            f"| {name}, {when} | " + " | ".join(f"{share:.2f}" for share in _shares(actions)) + " |"
            for name in (BCQ, SHPI)
            for when, actions in _halves(by_seed[min(by_seed)][name].actions)
        ),
        "",
        "![rewards by decision](figures/hiv-rewards.svg)",
        "",
        "![share outside the log](figures/hiv-outside.svg)",
        "",
    ]
    return "\n".join([*lines, *_words(by_seed), ""])


def _cell(trace: Trace) -> str:
    leaves = "never" if trace.leaves is None else f"from {trace.leaves}"
    return f"{trace.total:.2e} ({leaves})"


def _halves(actions: Int64Array) -> tuple[tuple[str, Int64Array], ...]:
    return (f"decisions 1 to {EARLY}", actions[:, :EARLY]), (f"from {EARLY + 1} on", actions[:, EARLY:])


def _shares(actions: Int64Array) -> Float64Array:
    counts = np.bincount(actions.ravel(), minlength=len(TREATMENTS))
    return np.asarray(counts / counts.sum())


def _words(by_seed: Mapping[int, Mapping[str, Trace]]) -> list[str]:
    """Sentences on the table, with its figures."""

    def share(name: str) -> str:
        return (
            f"{np.mean([by_policy[name].total / by_policy[BCQ].total for by_policy in by_seed.values()]):.1%}"
        )

    outside = np.mean([by_policy[BCQ].outside[:, EARLY:].mean() for by_policy in by_seed.values()])
    return [
        f"**Where it is earned.** After decision {EARLY}: SHPI's first {EARLY} decisions followed by BCQ "
        f"bring {share(LATE)} of what BCQ brings, BCQ's first {EARLY} followed by SHPI {share(BACK)}.",
        f"One treatment for good after them brings {share(THEN)}, so it is the switching between treatments "
        "that pays.",
        "",
        f"**What the log says about it.** Nothing: after decision {EARLY}, {outside:.0%} of the states of "
        "BCQ's patients lie outside everything in the log.",
        "There BCQ acts by what its network extrapolates, and in this world that happens to be right. "
        "A test on the log cannot tell such a policy from one",
        "that goes wrong outside it, so a learner that returns what it can prove cannot return it. "
        "Where you may try a policy in small, BCQ is the better bet here.",
    ]
