"""Diagnostics of the answers: are they possible, do they agree, what do they hang on?

Two estimators of one evaluation share their users, so the error of their difference is that of the
differences of their influences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

import numpy as np

from shpi.errors import ShpiError
from shpi.ope.baseline import on_policy, reward_terms
from shpi.ope.evaluate import LEAST_EFFECTIVE
from shpi.ope.importance import window_weights
from shpi.ope.intervals import standard_error
from shpi.ope.kstep import KStepSHPI
from shpi.ope.problem import Part, Problem
from shpi.ope.results import Diagnostic, Estimate, Severity
from shpi.ope.steps import step_means
from shpi.ope.weighting import StepWeights

# Whose bias vanishes with more users, and whose intervals hold: what these say, the one that decides must
# not contradict.
CONSISTENT = ("WDR", "SNPDIS", "SNIPS")
# In standard errors of the difference. That error is itself rough: in 76 logs of the storefront with 30 to
# 500 effective users the differences had standard deviations of 0.8 to 1.4 where 1 is expected, and single
# ones reached 4.
APART_FATAL, APART_NOTE = 4.0, 3.0
# If twice the k says clearly less, the k-step estimator leaves out effects that speak against the policy.
# Two standard errors: a false alarm (one log in 44) costs a ship, a missed one ships a bad policy.
DRIFT = 2.0
TOP_NOTE, TOP_WARNING = 0.25, 0.50  # of the value from 1 % of the users; equal users bring 1 %
CAPPED = 0.99  # the quantile at which weights are capped
STEPS = (1, 2, 4, 8)


def about_answers(problem: Problem, estimates: Sequence[Estimate], decisive: Estimate) -> list[Diagnostic]:
    """Range for every estimator; the rest for the one that decides."""
    found = [_range(problem, one) for one in estimates]
    found.append(_top_users(decisive))
    found += _disagreement(estimates, decisive)
    if problem.propensity_mode == "absent":
        return found
    if decisive.weights is not None:
        found += _clipping(problem, decisive)
    if problem.horizon > 1 and any(one.name.startswith("SHPI(") for one in estimates):
        found += _steps(problem, decisive)
    return found


# ---------------------------------------------------------------------- possible values


def _range(problem: Problem, estimate: Estimate) -> Diagnostic:
    low, high = possible(problem, per_decision=_per_decision(problem, estimate))
    slack = 1e-9 * max(abs(low), abs(high), 1e-300)
    outside = not low - slack <= estimate.value <= high + slack
    reach = estimate.value_interval
    beyond = reach.lower < low - slack or reach.upper > high + slack
    severity: Severity = "fatal" if outside else "note" if beyond else "fine"
    sentence = f"{estimate.name} says {estimate.value:.5g}; "
    if outside:
        sentence += f"with the rewards of this log only {low:.5g} to {high:.5g} is possible."
    elif beyond:
        sentence += f"its interval reaches beyond what is possible, {low:.5g} to {high:.5g}."
    else:
        sentence += f"possible is {low:.5g} to {high:.5g}."
    return Diagnostic(
        name="range",
        severity=severity,
        sentence=sentence,
        figure=estimate.value,
        threshold=high if estimate.value > high else low,
        estimator=estimate.name,
    )


def possible(problem: Problem, *, per_decision: bool = False) -> tuple[float, float]:
    """The least and the largest value that rewards within the log's range allow; who leaves earns 0."""
    low, high = problem.reward_range
    if per_decision:
        return low, high
    if problem.any_terminated:
        low, high = min(low, 0.0), max(high, 0.0)
    scale = problem.per_user * float(problem.discounts.sum())
    return low * scale, high * scale


def _per_decision(problem: Problem, estimate: Estimate) -> bool:
    """Whether J was divided by the decisions: then the baseline is not J(mu)."""
    return not np.isclose(estimate.baseline, on_policy(problem).value, rtol=1e-6, atol=1e-12)


# ---------------------------------------------------------------------- few users


def _top_users(estimate: Estimate) -> Diagnostic:
    parts = np.sort(np.abs(estimate.value + estimate.influence_value))[::-1]  # [U] sum to U times the value
    top = max(1, round(len(parts) / 100))
    total = float(parts.sum())
    share = float(parts[:top].sum()) / total if total > 0 else 0.0
    severity: Severity = "warning" if share > TOP_WARNING else "note" if share > TOP_NOTE else "fine"
    if len(parts) < 100:  # one user is more than 1 %
        severity = "note" if severity == "warning" else severity
    rest = estimate.lift + estimate.influence_lift
    kept = np.argsort(np.abs(estimate.influence_lift), kind="stable")[: len(rest) - top]
    return Diagnostic(
        name="top users",
        severity=severity,
        sentence=f"The top 1 % of the users bring {share:.0%} of the estimated value; without those who move "
        f"the lift most it would be {float(rest[kept].mean()):+.4g} instead of {estimate.lift:+.4g}.",
        figure=share,
        threshold=TOP_WARNING,
        estimator=estimate.name,
    )


# ---------------------------------------------------------------------- agreement


def apart(one: Estimate, other: Estimate) -> float:
    """(lift - other lift) in standard errors of the difference."""
    error = standard_error(one.influence_lift - other.influence_lift)
    gap = one.lift - other.lift
    scale = max(abs(one.value), abs(one.baseline))
    if error <= 1e-12 * scale:
        return 0.0 if abs(gap) <= 1e-9 * scale else float(np.copysign(np.inf, gap))
    return gap / error


def _disagreement(estimates: Sequence[Estimate], decisive: Estimate) -> list[Diagnostic]:
    others = [one for one in estimates if one.name != decisive.name]
    if not others:
        return []
    gaps = {one.name: apart(decisive, one) for one in others}
    sure = [one.name for one in others if _consistent(one)]
    above = [name for name in sure if gaps[name] > APART_FATAL]
    differ = [name for name, gap in gaps.items() if abs(gap) > APART_NOTE and name not in above]
    if above:
        worst = max(above, key=lambda name: gaps[name])
        severity: Severity = "fatal"
        sentence = (
            f"{decisive.name} promises more than {', '.join(above)}, by {gaps[worst]:.1f} standard errors of "
            "the difference: one of them is wrong, and the cautious one does not support the lift."
        )
    elif differ:
        severity = "warning" if any(name in sure for name in differ) else "note"
        sentence = (
            f"{decisive.name} differs clearly from {', '.join(differ)}, beyond what chance explains; "
            + ("both cannot be right." if severity == "warning" else "those trust a model or plain weights.")
        )
    else:
        severity = "fine"
        sentence = f"{decisive.name} and the other estimators agree within chance."
    return [
        Diagnostic(
            name="disagreement",
            severity=severity,
            sentence=sentence,
            figure=max(gaps.values(), key=abs),
            threshold=APART_FATAL,
            estimator=decisive.name,
        )
    ]


def _consistent(estimate: Estimate) -> bool:
    weights = estimate.weights
    return estimate.name in CONSISTENT and weights is not None and weights.ess >= LEAST_EFFECTIVE


# ---------------------------------------------------------------------- sensitivity


def _steps(problem: Problem, decisive: Estimate) -> list[Diagnostic]:
    """How the answer changes with k; and, if a k-step estimator decides, whether twice the k says less."""
    own = _own_k(problem, decisive)
    wanted = {k for k in STEPS if k <= problem.horizon}
    if own is not None:
        wanted.add(min(2 * own, problem.horizon))
    found: dict[int, Estimate] = {}
    for k in sorted(wanted):
        try:
            found[k] = KStepSHPI(k=k).estimate(problem)
        except ShpiError:
            continue
    if len(found) < 2:
        return []
    lifts = ", ".join(f"{one.lift:+.4g} (k = {k})" for k, one in found.items())
    diagnostics = [
        Diagnostic(
            name="sensitivity to k",
            severity="fine",
            sentence=f"Following the policy's effects for more decisions changes the lift so: {lifts}.",
            figure=float(np.ptp([one.lift for one in found.values()])),
        )
    ]
    if own is None or min(2 * own, problem.horizon) not in found:
        return diagnostics
    drift = apart(decisive, found[min(2 * own, problem.horizon)])
    falls = drift > DRIFT
    sentence = (
        f"With twice as many steps {decisive.name} would say "
        f"{found[min(2 * own, problem.horizon)].lift:+.4g} instead of {decisive.lift:+.4g}"
    )
    sentence += ": effects that it leaves out speak against the policy." if falls else "."
    return [
        *diagnostics,
        Diagnostic(
            name="drift with k",
            severity="fatal" if falls else "fine",
            sentence=sentence,
            figure=drift,
            threshold=DRIFT,
            estimator=decisive.name,
        ),
    ]


def _own_k(problem: Problem, estimate: Estimate) -> int | None:
    """The k of a k-step estimator; of "session" the mean length of a session."""
    if not estimate.name.startswith("SHPI("):
        return None
    number = re.search(r"k=(\d+)", estimate.name)
    if number:
        return int(number.group(1))
    sessions = sum(problem.map(lambda part: part.logs.n_sessions))
    return max(1, round(problem.decisions / sessions))


def _clipping(problem: Problem, decisive: Estimate) -> list[Diagnostic]:
    """The self-normalised mean with the largest 1 % of the weights capped, against the same without."""
    own = _own_k(problem, decisive)
    window = None if own is None or own >= problem.horizon else own
    try:
        values = [
            step_means(problem, weigh, reward_terms, normalise=True).value
            for weigh in (partial(window_weights, k=window), _Capped(problem, window))
        ]
    except ShpiError:
        return []
    change = values[1] - values[0]
    scale = decisive.value / on_policy(problem).value if _per_decision(problem, decisive) else 1.0
    change *= abs(scale)
    large = decisive.lift_error > 0 and abs(change) > 2 * decisive.lift_error
    return [
        Diagnostic(
            name="sensitivity to clipping",
            severity="warning" if large else "fine",
            sentence=f"Capping the largest 1 % of the importance weights would change the lift by "
            f"{change:+.4g}, to {decisive.lift + change:+.4g}"
            + (", more than chance explains: a few decisions carry the answer." if large else "."),
            figure=change,
            threshold=2 * decisive.lift_error,
            estimator=decisive.name,
        )
    ]


class _Capped:
    """Weights capped at a quantile of those of the first part."""

    def __init__(self, problem: Problem, window: int | None) -> None:
        self.window = window
        rows = window_weights(next(problem.parts()), window).rows
        self.cap = float(np.quantile(rows, CAPPED, method="lower"))

    def __call__(self, part: Part) -> StepWeights:
        weights, cap = window_weights(part, self.window), self.cap
        tail = weights.tail
        return StepWeights(
            rows=np.minimum(weights.rows, cap),
            after=np.minimum(weights.after, cap),
            tail_length=weights.tail_length,
            tail=None if tail is None else lambda j: np.minimum(tail(j), cap),
        )
