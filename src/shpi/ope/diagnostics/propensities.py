r"""Diagnostics of the propensities: the logging policy evaluated by its own propensities, and calibration.

For any q(x, a), the taken actions must agree with the propensities,

    E[ q(x_t, a_t) - sum_a mu(a|x_t) q(x_t, a) ] = 0

With q the mean reward of each action, this compares the reward per decision that the propensities promise
("by the book") with the observed one. It needs mu(.|x) in the log. `shpi.ope.checks.balance.joint_test` tests
many other q: functions of the time, the contexts and the past.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from shpi.data._behaviour.calibration import Calibration, CalibrationBin, spread_rows
from shpi.ope.checks.balance.joint_test import about_balance
from shpi.ope.checks.days import days_of
from shpi.ope.inference.weighting import add_up
from shpi.ope.problem import Chunk, Problem
from shpi.ope.results import Diagnostic, Severity
from shpi.protocols import Float64Array

# Gap between promised and observed reward of mu: 4 standard errors are one false alarm in 16,000 logs. A gap
# below 1 % of the rewards' standard deviation is ignored, because logged probabilities are often rounded.
OWN_ERRORS, OWN_GAP = 4.0, 0.01
# A bin of the calibration table is off by more than (so many standard errors, this share of its prediction).
CALIBRATION_WARNING, CALIBRATION_FATAL = (4.0, 0.10), (6.0, 0.30)
LEAST_PAIRS = 100  # (decision, action) pairs in a bin, at least


def about_propensities(problem: Problem) -> list[Diagnostic]:
    """The diagnostics of a log that has propensities."""
    days = days_of(problem)
    if (
        days is not None and days.switched
    ):  # decisions are not independent draws, which the other diagnostics assume
        return about_balance(problem)
    calibration = _calibration(problem)
    known = problem.head.behaviour is not None
    return [
        *([_by_the_book(problem)] if known else []),
        *([] if calibration is None else [calibration]),
        *about_balance(problem),
    ]


def _by_the_book(problem: Problem) -> Diagnostic:
    """Compare the reward per decision promised by mu(.|x) and the actions' mean rewards with the observed."""
    sums = problem.total(_rewards_by_action)  # [3, A]
    total = float(sums[0].sum())
    mean = float(sums[1].sum()) / total
    quality = np.where(sums[0] > 0, sums[1] / np.maximum(sums[0], 1.0), mean)  # [A]
    spread = np.sqrt(max(float(sums[2].sum()) / total - mean**2, 0.0))
    gaps = problem.by_user(partial(_gaps, quality=quality))  # [U]
    gap = float(gaps.sum()) / total
    error = float(np.std(gaps, ddof=1)) * np.sqrt(len(gaps)) / total
    covered = abs(gap) <= OWN_ERRORS * error or abs(gap) <= OWN_GAP * spread
    if covered:
        sentence = (
            f"The logged probabilities predict a reward of {mean - gap:.4g} per decision; the log has "
            f"{mean:.4g}, within the error ({error:.2g})."
        )
    else:
        sentence = (
            f"The logged probabilities predict a reward of {mean - gap:.4g} per decision, but the log has "
            f"{mean:.4g} (error {error:.2g}): actions were not chosen with these probabilities."
        )
    return Diagnostic(
        name="logging policy",
        severity="fine" if covered else "fatal",
        sentence=sentence,
        figure=abs(gap) / error if error > 0 else 0.0,
        threshold=OWN_ERRORS,
    )


def _rewards_by_action(chunk: Chunk) -> Float64Array:
    observed, size = chunk.observed, chunk.logs.n_actions
    actions, rewards = chunk.logs.actions[observed], chunk.rewards[observed]
    columns = (np.ones(len(rewards)), rewards, rewards**2)
    return np.stack([np.bincount(actions, weights=column, minlength=size) for column in columns])


def _gaps(chunk: Chunk, quality: Float64Array) -> Float64Array:
    """The sum of q(a_t) - sum_a mu(a|x_t) q(a) over each user's decisions [users of the chunk]."""
    assert chunk.logs.behaviour is not None
    gap = quality[chunk.logs.actions] - chunk.logs.behaviour @ quality
    return add_up(chunk.users, np.where(chunk.observed, gap, 0.0), chunk.logs.n_users)


# ---------------------------------------------------------------------- calibration


def _calibration(problem: Problem) -> Diagnostic | None:
    """Whether actions with propensity 5 % were chosen 5 % of the time; single decisions count, not users."""
    estimated = problem.propensity_mode == "estimated"
    logs = problem.sample().logs
    if logs.behaviour is None:
        return (
            Diagnostic(
                name="propensities",
                severity="warning",
                sentence="The propensities were estimated from the log, and mu(.|x) was not kept, so their "
                "calibration could not be checked.",
            )
            if estimated
            else None
        )
    rows = spread_rows(len(logs), logs.n_actions, 5_000_000)
    mask = None if logs.candidates is None else logs.candidates[rows]
    table = Calibration.of(logs.behaviour[rows], logs.actions[rows], mask)
    bins = [bin_ for bin_ in table.bins if bin_.count >= LEAST_PAIRS and bin_.predicted > 0]
    severity, worst = _graded(bins)
    if estimated and severity == "fine":
        severity = "note"
    sentence = "The propensities "
    if estimated:
        sentence += "were estimated from the log; confounding outside the contexts stays unseen. They "
    if worst is None:
        sentence += "agree with how often actions were chosen."
    else:
        sentence += (
            f"are furthest off where they say {worst.predicted:.1%}: these actions were chosen "
            f"{worst.observed:.1%} of the time."
        )
    return Diagnostic(
        name="propensities",
        severity=severity,
        sentence=sentence,
        figure=0.0 if worst is None else abs(worst.observed / worst.predicted - 1),
        threshold=CALIBRATION_FATAL[1],
    )


def _graded(bins: list[CalibrationBin]) -> tuple[Severity, CalibrationBin | None]:
    def beyond(limits: tuple[float, float]) -> list[CalibrationBin]:
        errors, gap = limits
        return [b for b in bins if abs(b.z) > errors and abs(b.observed / b.predicted - 1) > gap]

    levels: tuple[tuple[Severity, tuple[float, float]], ...] = (
        ("fatal", CALIBRATION_FATAL),
        ("warning", CALIBRATION_WARNING),
    )
    for severity, limits in levels:
        outside = beyond(limits)
        if outside:
            return severity, max(outside, key=lambda b: abs(b.observed / b.predicted - 1))
    return "fine", None
