"""OfflineSHPI's defaults on the synthetic task, one configuration for all logs, against `paper()` and mu.

Ten trials of 2,000 trajectories for epsilon 0.3, 0 and 1. Trials use seeds 0 to 9; everything was tuned on
seeds from 100. Writes docs/offline-defaults.md.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.report import Row
from benchmarks.synthetic_task import Outcome, log_of, logging_policy, outcome, standard_error
from shpi.learners import OfflineSHPI

EPSILONS, SEEDS = (0.3, 0.0, 1.0), range(10)
NOISE = 3.0  # most standard errors by which one of 30 trials may be worse than mu
PAGE = Path(__file__).resolve().parents[1] / "docs" / "offline-defaults.md"
PRINTED = {0.3: "8411 (0.987)", 0.0: "8346 (0.979) in Table 3", 1.0: "8346 (0.979) in the appendix"}


class Trial(NamedTuple):
    """Means over 200 new users, and paired differences to mu in standard errors."""

    epsilon: float
    seed: int
    mu: float
    ours: float
    paper: float
    difference: float  # paired difference of the attained share to mu's
    noise: float  # its standard error
    reward: float  # gain in discounted reward, in percent of the absolute value of mu's
    reward_z: float
    tests: int
    returned: str
    seconds: float


def trial(case: tuple[float, int]) -> Trial:
    """Learn from one log, and test on new users."""
    epsilon, seed = case
    logs = log_of(epsilon, seed)
    began = time.process_time()
    policy = OfflineSHPI(seed=seed, progress=False).fit(logs)
    seconds = time.process_time() - began
    printed = OfflineSHPI.paper(seed=seed, progress=False).fit(logs)
    mu, ours = outcome(logging_policy(epsilon), seed), outcome(policy, seed)
    return Trial(
        epsilon,
        seed,
        float(mu.attained.mean()),
        float(ours.attained.mean()),
        float(outcome(printed, seed).attained.mean()),
        *_compared(mu, ours),
        len(policy.trials),
        next((t.words for t in policy.trials if t.returned), "the logging policy"),
        seconds,
    )


def _compared(mu: Outcome, ours: Outcome) -> tuple[float, float, float, float]:
    share, reward = ours.attained - mu.attained, ours.discounted - mu.discounted
    return (
        float(share.mean()),
        standard_error(share),
        100 * float(reward.mean() / np.abs(mu.discounted.mean())),
        float(reward.mean() / standard_error(reward)),
    )


def run() -> list[Row]:
    cases = [(epsilon, seed) for epsilon in EPSILONS for seed in SEEDS]
    with ProcessPoolExecutor(2) as pool:
        trials = []
        for t in pool.map(trial, cases):
            trials.append(t)
            print(f"  epsilon {t.epsilon:g} seed {t.seed}: {t.ours:.4f}, mu {t.mu:.4f}, "
                  f"paper() {t.paper:.4f}, tests {t.tests}, {t.seconds:.0f} s", flush=True)  # fmt: skip
    write_page(trials)
    rows = []
    for epsilon in EPSILONS:
        some = [t for t in trials if t.epsilon == epsilon]
        goal = ">= 0.98" if epsilon > 0 else ""
        note = f"mu {_mean([t.mu for t in some]):.4f}, paper() {_mean([t.paper for t in some]):.4f}"
        rows.append(Row(f"attained, epsilon {epsilon:g}", _mean([t.ours for t in some]), "share", note, goal))
    worst = min(_z(t) for t in trials)
    return [
        *rows,
        Row("worst trial against mu, attained", worst, "s.e.", "paired, 200 users", f">= -{NOISE:g}"),
        Row("worst trial against mu, reward", min(t.reward_z for t in trials), "s.e.", "paired, 200 users",
            f">= -{NOISE:g}"),
    ]  # fmt: skip


def _z(t: Trial) -> float:
    """By how many standard errors the policy is better than mu; standard errors are at least 1e-4."""
    return t.difference / max(t.noise, 1e-4)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def write_page(trials: list[Trial]) -> None:
    """Write the tables of the documentation."""
    head = [
        "# What the defaults attain",
        "",
        "`python -m benchmarks defaults` writes this page. The synthetic task, 2,000 trajectories, one",
        "configuration for all logs, seeds 0 to 9 (tuned on seeds from 100), 200 new users per trial.",
        "*Attained* is the share of the possible improvement of the final state, as in the paper. The reward",
        "is what the algorithm maximises: the discounted sum over all 150 decisions.",
        "",
        "| epsilon | mu | defaults | `paper()` | the paper | trials below mu by 2 s.e. | gain in reward |",
        "|---|---|---|---|---|---|---|",
    ]
    for epsilon in EPSILONS:
        some = [t for t in trials if t.epsilon == epsilon]
        ours, below = [t.ours for t in some], sum(_z(t) < -2 for t in some)
        head.append(
            f"| {epsilon:g} | {_mean([t.mu for t in some]):.4f} | **{_mean(ours):.4f}** "
            f"({min(ours):.4f} to {max(ours):.4f}) | {_mean([t.paper for t in some]):.3f} | "
            f"{PRINTED[epsilon]} | {below} of {len(some)} | {_mean([t.reward for t in some]):.1f} % "
            f"(worst trial {min(t.reward_z for t in some):.1f} s.e.) |"
        )
    lines = [
        "",
        "| epsilon | seed | mu | defaults | difference ± s.e. | gain in reward | `paper()` | tests "
        "| returned |",
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {t.epsilon:g} | {t.seed} | {t.mu:.4f} | {t.ours:.4f} | {t.difference:+.4f} ± {t.noise:.4f} | "
            f"{t.reward:+.1f} % ({t.reward_z:+.1f} s.e.) | {t.paper:.3f} | {t.tests} | {t.returned} |"
            for t in trials
        ),
    ]
    PAGE.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")
