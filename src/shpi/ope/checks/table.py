"""Check that the value of the logging policy equals the mean that one counts by hand in the table.

J(mu) needs no model and no weights: add up each user's rewards and take the mean. Without censoring the two
must agree up to rounding. If the end of the log cuts some users off, J(mu) also includes the rewards that
they are expected to bring later. Then both numbers are shown, and a large difference is a warning, because
every lift is measured against J(mu).
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

ROUNDING = 1e-6  # tolerance, as a share of the mean over users of the sum of absolute rewards
FAR = 0.5  # a censored value that differs by more than this share of the table's mean is a warning
APART = 4.0  # standard errors; a larger gap between fully observed users and all, weighted, is a warning


def about_table(problem: Problem) -> list[Diagnostic]:
    """Compare the value of mu with the table and, for a metric with a window, with fully observed users."""
    # Plain sums over the log as given, over the first ``horizon`` decisions of every trajectory.
    total, size, unknown = problem.total(partial(_sums, problem=problem))
    mean, scale = float(total) / problem.users, float(size) / problem.users
    value = on_policy(problem).value
    if problem.censored or unknown:
        return [_censored(problem, value, mean)]
    agrees = math.isclose(value, mean, rel_tol=0.0, abs_tol=ROUNDING * max(scale, 1e-300))
    with_table = Diagnostic(
        name="value of the log",
        severity="fine" if agrees else "fatal",
        sentence=f"The logging policy brought {value:.5g} per user, "
        + ("as in the table." if agrees else f"but the table holds {mean:.5g}."),
        figure=value - mean,
        threshold=ROUNDING * scale,
    )
    counted = problem.head.counted
    plain = problem.metric is None and problem.gamma == 1 and problem.settings.horizon is None
    if counted is None or counted.metric.window is None or not plain or counted.observed_less == 0:
        return [with_table]
    # The plain mean of users observed for the whole window, and the weighted value of all users.
    error = math.hypot(standard_error(on_policy(problem).influence), counted.by_hand_error)
    far = abs(value - counted.by_hand) > APART * error
    sentence = (
        f"The {counted.by_hand_users:,} users who are observed for the whole window brought "
        f"{counted.by_hand:.5g} each; with those observed for less it is {value:.5g}."
    )
    if far:
        sentence += " Users who came early and late differ: the weights assume that they do not."
    with_window = Diagnostic(
        name="value of the log",
        severity="warning" if far else "fine",
        sentence=sentence,
        figure=value - counted.by_hand,
        threshold=APART * error,
    )
    return [with_table, with_window]


def _sums(chunk: Chunk, problem: Problem) -> Float64Array:
    """The sums of discounted rewards and of their absolute values, and the number of unknown rewards [3]."""
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
