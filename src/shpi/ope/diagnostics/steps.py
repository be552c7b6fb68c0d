"""Diagnostics of the bias of an estimator that follows the policy's effects for k decisions only.

Such an estimator is precise because it leaves out later effects, and its interval covers noise but not this
bias. The only evidence about the bias is the same estimator with a larger k, called its witness
(`shpi.ope.verdict.longer`).
"""

from __future__ import annotations

from functools import partial

from shpi._core.distributions import normal_quantile
from shpi.ope.estimators.base import standardised_difference
from shpi.ope.inference.intervals import standard_error
from shpi.ope.problem import Problem
from shpi.ope.results import Diagnostic, Estimate, Severity
from shpi.ope.verdict.longer import LEAST_WITNESS, k_step, longest, preview

# If a larger k gives a clearly smaller lift, the estimator leaves out effects that speak against the policy.
# In standard errors; at 2, a false alarm (one log in 44) prevents a ship, a missed one ships a bad policy.
DRIFT = 2.0
# Bias relative to the standard error; at one half, a 95 % interval covers 92 %, a lower bound holds in 87 %.
HALF = 0.5
SURE = 0.95  # confidence with which a larger bias is excluded
STEPS = (1, 2, 4, 8)  # values of k to compare


def about_steps(problem: Problem, decisive: Estimate) -> list[Diagnostic]:
    """How the lift changes with k, and whether an estimate that follows only some steps is reliable."""
    if decisive.steps is None:
        return _sensitivity(problem, decisive)
    diagnostics, witness = problem.all_of(
        [partial(_sensitivity, problem, decisive), partial(longest, problem, decisive)]
    )
    return [*diagnostics, *_drift(problem, decisive, witness), _left_out(problem, decisive, witness)]


def _sensitivity(problem: Problem, decisive: Estimate) -> list[Diagnostic]:
    wanted = [k for k in STEPS if k <= problem.horizon]
    previews = problem.all_of([partial(preview, problem, k, decisive.per) for k in wanted])
    lifts = {k: known.lift for k, known in zip(wanted, previews, strict=True) if known is not None}
    if len(lifts) < 2:
        return []
    shown = ", ".join(f"{lift:+.4g} (k = {k})" for k, lift in lifts.items())
    return [
        Diagnostic(
            name="sensitivity to k",
            severity="fine",
            sentence=f"The lift with the policy's effects followed for k decisions: {shown}.",
            figure=max(lifts.values()) - min(lifts.values()),
        )
    ]


def _drift(problem: Problem, decisive: Estimate, witness: Estimate | None) -> list[Diagnostic]:
    """Whether the witness gives a clearly smaller lift; without a witness, the estimate with twice the k."""
    assert decisive.steps is not None
    other = witness or k_step(problem, min(2 * decisive.steps, problem.horizon), decisive.per)
    if other is None:
        return []
    drift = standardised_difference(decisive, other)
    falls = drift > DRIFT
    sentence = (
        f"Over {_decisions(problem, other)} instead of {decisive.steps}, {decisive.name} estimates "
        f"{other.lift:+.4g} instead of {decisive.lift:+.4g}"
    )
    sentence += ": the effects that it leaves out lower the lift." if falls else "."
    return [
        Diagnostic(
            name="drift with k",
            severity="fatal" if falls else "fine",
            sentence=sentence,
            figure=drift,
            threshold=DRIFT,
            estimator=decisive.name,
        )
    ]


def _left_out(problem: Problem, decisive: Estimate, witness: Estimate | None) -> Diagnostic:
    """The largest bias that the log cannot exclude."""
    assert decisive.steps is not None
    sentence = (
        f"{decisive.name} counts a decision's effects for {decisive.steps} of {problem.horizon} decisions"
    )
    if witness is None:
        longer = preview(problem, decisive.steps + 1, decisive.per)
        return Diagnostic(
            name="steps left out",
            severity="fatal",
            sentence=f"{sentence}, and no larger k has {LEAST_WITNESS:.0f} effective users: later effects "
            "are unknown.",
            figure=0.0 if longer is None else longer.effective_users,
            threshold=LEAST_WITNESS,
            estimator=decisive.name,
        )
    gap = decisive.lift - witness.lift
    error = standard_error(decisive.influence_lift - witness.influence_lift)
    allowed = abs(gap) + float(normal_quantile(SURE)) * error
    large = allowed > HALF * decisive.lift_error
    severity: Severity = "warning" if large else "fine"
    sentence += (
        f". Over {_decisions(problem, witness)} the lift is {witness.lift:+.4g}, at least "
        f"{witness.lift_interval.lower_bound:+.4g}: "
    )
    if large:
        sentence += f"a bias of up to {allowed:.3g} cannot be excluded, and the interval does not cover it."
    else:
        sentence += "what it leaves out is small relative to its error."
    return Diagnostic(
        name="steps left out",
        severity=severity,
        sentence=sentence,
        figure=allowed,
        threshold=HALF * decisive.lift_error,
        estimator=decisive.name,
    )


def _decisions(problem: Problem, estimate: Estimate) -> str:
    return f"{problem.horizon if estimate.steps is None else estimate.steps} decisions"
