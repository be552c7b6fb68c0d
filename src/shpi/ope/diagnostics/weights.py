"""Diagnostics of importance weights: their effective sample size, their tails, and their mean."""

from __future__ import annotations

import math

from shpi.data.audit.propensity import Excess, excess_of_known
from shpi.ope.checks.clusters import found_clusters
from shpi.ope.estimators.base import LEAST_EFFECTIVE
from shpi.ope.problem import Chunk, Problem
from shpi.ope.results import Diagnostic, Estimate, Severity, Weights

# Effective users. At 30 to 150 the floor of the standard errors (`shpi.ope.inference.steps`) raised coverage
# to 95-99 %; below 30 it was not measured. Up to 100, t intervals of skewed rewards are slightly off.
FEW_EFFECTIVE = 100.0
# Share of the weight that the top 1 % of the users carry; 1 % if weights are equal. At one half, the estimate
# is that of a hundredth of the users, with the rest as a small correction.
HEAVY_TOP, HEAVIER_TOP = 0.25, 0.50
# Distance of the mean weight from 1. E[w] = 1 if the propensities are right and mu supports the policy; the
# rest is the share of the policy's trajectories without support. 10 % can hide a lift of a few percent.
MEAN_WARNING, MEAN_FATAL = 0.05, 0.10
MEAN_ERRORS = 3.0  # in standard errors: one false alarm in 370 logs
SHOWN_ONCE = 0.01  # if a larger share of the actions was chosen only once, others were missed by chance


def about_weights(problem: Problem, estimate: Estimate) -> list[Diagnostic]:
    """The diagnostics of one estimator's weights; none for an estimator without weights."""
    weights = estimate.weights
    if weights is None:
        return []
    few: Severity = "fatal" if weights.ess < LEAST_EFFECTIVE else "warning"
    few = few if weights.ess < FEW_EFFECTIVE else "fine"
    heavy: Severity = "warning" if weights.top_share > HEAVIER_TOP else "note"
    heavy = heavy if weights.top_share > HEAVY_TOP else "fine"
    worth = (
        f"{estimate.name} rests on about {weights.ess:,.0f} effective users out of {problem.users:,}: "
        "the log is worth that many users served by the policy itself."
    )
    if few == "fatal":
        worth += f" At least {LEAST_EFFECTIVE:.0f} are needed for a reliable standard error."
    return [
        Diagnostic(
            name="effective users",
            severity=few,
            sentence=worth,
            figure=weights.ess,
            threshold=LEAST_EFFECTIVE,
            estimator=estimate.name,
        ),
        Diagnostic(
            name="weight tails",
            severity=heavy,
            sentence=f"In {estimate.name} the 1 % of the users with the largest weights carry "
            f"{weights.top_share:.0%} of all weight; the heaviest counts as much as {weights.max:,.1f} "
            "users.",
            figure=weights.top_share,
            threshold=HEAVIER_TOP,
            estimator=estimate.name,
        ),
        _mean(problem, estimate, weights),
    ]


def has_enough_support(problem: Problem, estimate: Estimate) -> bool:
    """Whether an estimate's weights leave enough effective users and cover what the policy would do.

    This depends on the weights only, so selecting estimates by it does not favour lucky rewards.
    """
    return estimate.effective_users >= LEAST_EFFECTIVE and not any(
        diagnostic.severity == "fatal" for diagnostic in about_weights(problem, estimate)
    )


def _mean(problem: Problem, estimate: Estimate, weights: Weights) -> Diagnostic:
    """Whether the mean weight is 1. Its error follows from the effective users: (sd/mean)^2 = U/ess - 1.

    The variance of the mean over steps is at most the mean of the steps' variances, which 1/ess measures. So
    the error is rather too large than too small.
    """
    gap = abs(weights.mean - 1)
    relative = math.sqrt(max(1 / weights.ess - 1 / problem.users, 0.0)) if weights.ess > 0 else math.inf
    error = weights.mean * relative
    # The 1e-9 allows for rounding when all weights are equal.
    # If all users of a day share an arm, the standard error over users is meaningless.
    clear = gap > MEAN_ERRORS * error + 1e-9 and found_clusters(problem) is None
    severity: Severity = "fine"
    if clear and gap > MEAN_FATAL:
        severity = "fatal"
    elif clear and gap > MEAN_WARNING:
        severity = "warning"
    sentence = f"The importance weights of {estimate.name} have mean {weights.mean:.3g} (± {error:.2g})"
    if severity == "fine":
        sentence += ", consistent with 1, as correct propensities and full support give."
    elif estimate.name == "MIS":
        sentence += "; a correct ratio of contexts gives 1: the model behind it does not fit this log."
    elif weights.mean < 1:
        sentence += (
            "; correct propensities and full support give 1: the log has no support for some actions of the "
            "policy, or the logged propensities are too large."
        )
    elif _chosen_as_often_as_said(problem):
        sentence += (
            "; correct propensities give 1 if all actions are known. The log knows only chosen actions, so "
            "rare ones seem too frequent; after their first choice, actions are as frequent as logged."
        )
    else:
        sentence += "; correct propensities give 1: the logged propensities are too small."
    return Diagnostic(
        name="mean weight",
        severity=severity,
        sentence=sentence,
        figure=weights.mean,
        threshold=MEAN_FATAL,
        estimator=estimate.name,
    )


def _chosen_as_often_as_said(problem: Problem) -> bool:
    """Whether rare actions, and not wrong propensities, explain a mean weight above 1."""
    excess = problem.memo("excess of known actions", lambda: _excess(problem.sample()))
    once = problem.memo("actions chosen once", lambda: _share_once(problem))
    return once > SHOWN_ONCE and excess.z <= MEAN_ERRORS


def _excess(chunk: Chunk) -> Excess:
    logs = chunk.logs
    if logs.propensities is None or logs.candidates is not None:
        return Excess(total=math.inf, variance=1.0, expected=1.0)
    return excess_of_known(logs.actions, 1 / logs.propensities, logs.n_actions)


def _share_once(problem: Problem) -> float:
    counts = problem.times_taken
    return float((counts == 1).sum() / max((counts > 0).sum(), 1))
