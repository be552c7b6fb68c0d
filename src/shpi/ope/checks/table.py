"""Does the value of the logging policy agree with what one counts by hand in the table?

J(mu) needs no model and no weights, so anybody can check it: add up each user's rewards and take the mean.
Where nobody is censored the two must be equal to rounding. Where some users are cut by the end of the log,
J(mu) puts a number on what they would have brought; then both numbers are shown, and a large difference is a
warning, because every lift is measured against J(mu).
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from shpi.ope._log.facts import metric_of
from shpi.ope.estimators.baseline import on_policy
from shpi.ope.inference.intervals import standard_error
from shpi.ope.problem import Chunk, Problem
from shpi.ope.results import Diagnostic, Severity
from shpi.protocols import Float64Array

ROUNDING = 1e-6  # of the mean absolute sum of a user
FAR = 0.5  # the share of the table's mean by which a censored value may differ before it is a warning
APART = 4.0  # standard errors between users observed for the whole window and all, weighted


def about_table(problem: Problem) -> list[Diagnostic]:
    """The value of mu against the table, and for a metric with a window against users observed throughout."""
    mean, scale, unknown = table_mean(problem)
    value = on_policy(problem).value
    if problem.censored or unknown:
        return [_censored(problem, value, mean)]
    agrees = math.isclose(value, mean, rel_tol=0.0, abs_tol=ROUNDING * max(scale, 1e-300))
    diagnostics = [
        Diagnostic(
            name="value of the log",
            severity="fine" if agrees else "fatal",
            sentence=f"The logging policy brought {value:.5g} per user, "
            + ("as in the table." if agrees else f"but the table holds {mean:.5g}."),
            figure=value - mean,
            threshold=ROUNDING * scale,
        )
    ]
    return diagnostics + _window(problem, value)


def table_mean(problem: Problem) -> tuple[float, float, int]:
    """What the table holds per user, the same of absolute rewards, and how many rewards are unknown.

    Counted from the log as it was given, by nothing but sums: discounted as the metric asks, the first
    ``horizon`` decisions of every trajectory.
    """
    total, size, unknown = problem.total(partial(_sums, problem=problem))
    return float(total) / problem.users, float(size) / problem.users, int(unknown)


def _sums(chunk: Chunk, problem: Problem) -> Float64Array:
    """The discounted rewards, their absolute values, and the number of unknown ones, [3]."""
    logs, unknown = chunk.raw, 0
    rewards, steps = metric_of(logs, problem.metric), logs.steps
    counted = steps < problem.horizon
    if problem.metric is None and logs.reward_observed is not None:
        unknown = int((counted & ~logs.reward_observed).sum())
        counted &= logs.reward_observed
    paid = rewards[counted] * problem.gamma ** steps[counted]
    return np.array([paid.sum(), np.abs(paid).sum(), unknown])


def _censored(problem: Problem, value: float, mean: float) -> Diagnostic:
    far = abs(value - mean) > FAR * abs(mean)
    severity: Severity = "warning" if far else "note"
    who = f"{problem.censored:,} of {problem.trajectories:,} trajectories are censored by the end of the log"
    if not problem.censored:
        who = "some rewards are not known yet"
    sentence = (
        f"The logging policy's value is {value:.5g} per user, and the table holds {mean:.5g}: {who}, and the "
        "difference is the expected later reward."
    )
    if far:
        sentence += (
            " That is a large extrapolation. A metric with a window, such as --metric 'reward in 30d', needs "
            "less of it."
        )
    return Diagnostic(
        name="value of the log", severity=severity, sentence=sentence, figure=value - mean, threshold=FAR
    )


def _window(problem: Problem, value: float) -> list[Diagnostic]:
    """Users observed for the whole window, by hand, against all users, weighted."""
    counted = problem.head.counted
    plain = problem.metric is None and problem.gamma == 1 and problem.settings.horizon is None
    if counted is None or counted.metric.window is None or not plain or counted.observed_less == 0:
        return []
    error = math.hypot(standard_error(on_policy(problem).influence), counted.by_hand_error)
    far = abs(value - counted.by_hand) > APART * error
    sentence = (
        f"The {counted.by_hand_users:,} users who are observed for the whole window brought "
        f"{counted.by_hand:.5g} each; with those observed for less it is {value:.5g}."
    )
    if far:
        sentence += " Users who came early and late differ: the weights assume that they do not."
    return [
        Diagnostic(
            name="value of the log",
            severity="warning" if far else "fine",
            sentence=sentence,
            figure=value - counted.by_hand,
            threshold=APART * error,
        )
    ]
