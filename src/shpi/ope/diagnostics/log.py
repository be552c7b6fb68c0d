"""Diagnostics of the log and of the policy on it: users, propensities, support."""

from __future__ import annotations

from functools import partial

import numpy as np

from shpi.ope.checks.clusters import found_clusters
from shpi.ope.diagnostics.propensities import about_propensities
from shpi.ope.inference.weighting import add_up
from shpi.ope.problem import Chunk, Problem
from shpi.ope.results import Diagnostic, Estimate, Severity
from shpi.protocols import Float64Array

LEAST_USERS, FEW_USERS = 30, 100  # users; with fewer, fatal or a warning, as for effective users
# Share of the policy's decisions outside the support of mu, about which no estimator can know anything. A
# share s biases each reward by up to s times its range.
UNSEEN_WARNING, UNSEEN_FATAL = 0.01, 0.05
RARE_COUNT = 10  # "hardly ever": fewer than so many decisions in a log where every decision had this mu(a|x)
RARE_WARNING = 0.20  # share of the policy's decisions that the log hardly ever takes
_SHORT = 3.0  # standard errors by which the mean of pi/mu must fall below 1 to count as missing support


def about_log(problem: Problem, decisive: Estimate) -> list[Diagnostic]:
    """The diagnostics that concern every estimator."""
    severity: Severity = "fine"
    if problem.users < LEAST_USERS:
        severity = "fatal"
    elif problem.users < FEW_USERS:
        severity = "warning"
    few = "" if severity == "fine" else " That is too few for an interval of the stated confidence."
    if severity == "warning":
        few = " With so few, the stated confidence is approximate."
    users = Diagnostic(
        name="users",
        severity=severity,
        sentence=f"The log has {problem.users:,} users; decisions of one user count as one observation.{few}",
        figure=float(problem.users),
        threshold=float(LEAST_USERS),
    )
    if problem.propensity_mode == "absent":
        return [users, _no_propensities(decisive)]
    return [users, _support(problem), *about_propensities(problem)]


def _no_propensities(decisive: Estimate) -> Diagnostic:
    return Diagnostic(
        name="propensities",
        severity="fatal",
        sentence=f"The log has no propensities, so {decisive.name} relies on its model, and nothing in the "
        "log could show that the model is wrong. Log the probability of each action, or estimate it "
        "(logs.with_estimated_propensities(), --estimate-propensities).",
    )


# ---------------------------------------------------------------------- support


def _support(problem: Problem) -> Diagnostic:
    counts = problem.times_taken.astype(np.float64)  # [A]
    by_user, totals = problem.by_user(partial(_reach, counts=counts), and_total=True)
    (ratios, decisions), (count, never, rarely) = by_user, totals
    never, rarely = never / count, rarely / count
    # The mean of pi/mu over single decisions, its error clustered by user, shows missing support even if only
    # the taken action's propensity was logged. If all users of a day share an arm, that error is meaningless.
    mean = float(ratios.sum() / count)
    error = float(np.std(ratios - mean * decisions, ddof=1)) * np.sqrt(len(ratios)) / count
    short = 1 - mean
    unseen = max(never, short if short > _SHORT * error and found_clusters(problem) is None else 0.0)
    severity: Severity = "fine"
    if unseen > UNSEEN_FATAL:
        severity = "fatal"
    elif unseen > UNSEEN_WARNING or rarely > RARE_WARNING:
        severity = "warning"
    words = [f"{unseen:.1%} of the policy's decisions would be actions that the logging policy never takes"]
    if rarely > 0:
        words.append(f"{rarely:.1%} actions that it hardly ever takes")
    sentence = " and ".join(words) + "."
    if severity == "fatal":
        sentence += " The log cannot tell their reward."
    return Diagnostic(
        name="support", severity=severity, sentence=sentence, figure=unseen, threshold=UNSEEN_FATAL
    )


def _reach(chunk: Chunk, counts: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Per user, the sum of pi/mu and the decisions [2, users]; in total, decisions, never, rarely [3]."""
    logs, total = chunk.logs, float(counts.sum())
    never = rarely = 0.0
    for rows, probs in chunk.probs():
        mu = counts / total if logs.behaviour is None else logs.behaviour[rows]  # [A] or [b, A]
        gone = mu <= 0
        rare = ~gone & (mu * total < RARE_COUNT)
        never += float(np.sum(probs * gone))
        rarely += float(np.sum(probs * rare))
    assert logs.propensities is not None
    ratios = add_up(chunk.users, chunk.taken / logs.propensities, logs.n_users)
    decisions = add_up(chunk.users, np.ones(len(logs)), logs.n_users)
    return np.stack([ratios, decisions]), np.array([len(logs), never, rarely])
