"""Diagnostics of the estimates: whether they are possible, whether they agree, and what dominates them.

Two estimates of one evaluation share their users, so the standard error of their difference is that of the
differences of their influences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from shpi._core.distributions import degrees_of_freedom
from shpi.errors import ShpiError
from shpi.ope.diagnostics.steps import about_steps
from shpi.ope.estimators.base import LEAST_EFFECTIVE, ROUNDING, standardised_difference
from shpi.ope.estimators.baseline import on_policy, reward_terms
from shpi.ope.estimators.importance import window_weights
from shpi.ope.inference.steps import summed
from shpi.ope.inference.weighting import StepWeights
from shpi.ope.problem import Chunk, Problem
from shpi.ope.results import Diagnostic, Estimate, Severity

# In standard errors of the difference, which are themselves rough: in 76 logs of the storefront with an
# effective sample size of 30 to 500 users, the standardised differences had standard deviations of 0.8 to 1.4
# where 1 is expected, and single ones reached 4.
APART_FATAL, APART_NOTE = 4.0, 3.0
TOP_NOTE, TOP_WARNING = 0.25, 0.50  # share of the value from the top 1 % of the users; 0.01 if all are equal
# Users with normal influences from whom the standard error would be known equally well. In settings of the
# coverage benchmark with fewer than 15, 95 % bounds held in up to 100 % of the logs, t intervals in 90 %.
FEW_BEHIND = 15.0
CAPPED = 0.99  # quantile at which importance weights are capped
LATE = 0.2  # share of all absolute rewards; if more come late, their error can hide a typical lift


def about_answers(problem: Problem, estimates: Sequence[Estimate], decisive: Estimate) -> list[Diagnostic]:
    """The range check for every estimator, and the other checks for the one that decides."""
    diagnostics = [_range(problem, estimate) for estimate in estimates]
    diagnostics += _few_users(decisive)
    diagnostics += _disagreement(estimates, decisive)
    if problem.propensity_mode == "absent":
        return diagnostics
    checks = []
    if decisive.weights is not None:
        checks += [_clipping, about_late_value]
    if problem.horizon > 1 and (decisive.weights is not None or decisive.steps is not None):
        checks += [about_steps]
    groups = problem.all_of([partial(check, problem, decisive) for check in checks])
    return diagnostics + [diagnostic for group in groups for diagnostic in group]


# ---------------------------------------------------------------------- possible values


def _range(problem: Problem, estimate: Estimate) -> Diagnostic:
    low, high = possible(problem, per_decision=estimate.per == "decision")
    slack = ROUNDING * max(abs(low), abs(high), 1e-300)
    outside = not low - slack <= estimate.value <= high + slack
    reach = estimate.value_interval
    beyond = reach.lower < low - slack or reach.upper > high + slack
    severity: Severity = "fatal" if outside else "note" if beyond else "fine"
    sentence = f"{estimate.name} estimates {estimate.value:.5g}; "
    if outside:
        sentence += f"with the rewards of this log only {low:.5g} to {high:.5g} is possible."
    elif beyond:
        sentence += f"its interval exceeds the possible range, {low:.5g} to {high:.5g}."
    else:
        sentence += f"the possible range is {low:.5g} to {high:.5g}."
    return Diagnostic(
        name="range",
        severity=severity,
        sentence=sentence,
        figure=estimate.value,
        threshold=high if estimate.value > high else low,
        estimator=estimate.name,
    )


def possible(problem: Problem, *, per_decision: bool = False) -> tuple[float, float]:
    """The smallest and the largest value possible with rewards in the log's range; 0 after termination."""
    low, high = problem.reward_range
    if per_decision:
        return low, high
    if problem.any_terminated:
        low, high = min(low, 0.0), max(high, 0.0)
    scale = problem.per_user * float(problem.discounts.sum())
    return low * scale, high * scale


# ---------------------------------------------------------------------- few users


def _few_users(estimate: Estimate) -> list[Diagnostic]:
    """Whether few users hold the value, and whether few dominate the error: is the interval then certain?"""
    parts = np.sort(np.abs(estimate.value + estimate.influence_value))[::-1]  # [U] sum to U times the value
    top = max(1, round(len(parts) / 100))
    total = float(parts.sum())
    share = float(parts[:top].sum()) / total if total > 0 else 0.0
    severity: Severity = "warning" if share > TOP_WARNING else "note" if share > TOP_NOTE else "fine"
    if len(parts) < 100:  # one user alone is more than 1 %
        severity = "note" if severity == "warning" else severity
    rest = estimate.lift + estimate.influence_lift
    others = np.argsort(np.abs(estimate.influence_lift), kind="stable")[: len(rest) - top]
    top_users = Diagnostic(
        name="top users",
        severity=severity,
        sentence=f"The top 1 % of the users hold {share:.0%} of the estimated value; without those who move "
        f"the lift most, it would be {float(rest[others].mean()):+.4g} instead of {estimate.lift:+.4g}.",
        figure=share,
        threshold=TOP_WARNING,
        estimator=estimate.name,
    )

    worth = degrees_of_freedom(estimate.influence_lift)
    few = worth < FEW_BEHIND and estimate.lift_error > 0
    sentence = f"The standard error of {estimate.name} has about {worth:,.0f} degrees of freedom"
    if few:
        sentence += ": a few users dominate it; its interval may cover a few points less often than stated."
    else:
        sentence += "."
    behind_the_error = Diagnostic(
        name="users behind the error",
        severity="warning" if few else "fine",
        sentence=sentence,
        figure=worth,
        threshold=FEW_BEHIND,
        estimator=estimate.name,
    )
    return [top_users, behind_the_error]


# ---------------------------------------------------------------------- agreement


def _disagreement(estimates: Sequence[Estimate], decisive: Estimate) -> list[Diagnostic]:
    others = [estimate for estimate in estimates if estimate.name != decisive.name]
    if not others:
        return []
    gaps = {other.name: standardised_difference(decisive, other) for other in others}
    sure = [
        other.name
        for other in others
        if other.consistent and other.weights is not None and other.weights.ess >= LEAST_EFFECTIVE
    ]
    above = [name for name in sure if gaps[name] > APART_FATAL]
    differ = [name for name, gap in gaps.items() if abs(gap) > APART_NOTE and name not in above]
    if above:
        worst = max(above, key=lambda name: gaps[name])
        severity: Severity = "fatal"
        sentence = (
            f"{decisive.name} estimates a larger lift than {', '.join(above)}, by {gaps[worst]:.1f} standard "
            "errors of the difference: one of them is wrong, and the lower one does not support the lift."
        )
    elif differ:
        severity = "warning" if any(name in sure for name in differ) else "note"
        sentence = (
            f"{decisive.name} differs clearly from {', '.join(differ)}, beyond what chance explains; "
            + (
                "both cannot be right."
                if severity == "warning"
                else "those may be biased, or their intervals unreliable."
            )
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


# ---------------------------------------------------------------------- sensitivity


def _clipping(problem: Problem, decisive: Estimate) -> list[Diagnostic]:
    """Compare the self-normalised value with and without capping the largest 1 % of the weights."""
    window = decisive.steps
    try:
        cap = float(np.quantile(window_weights(problem.sample(), window).rows, CAPPED, method="lower"))
        free, capped = problem.all_of(
            [
                partial(summed, problem, weigh, reward_terms, normalise=True)
                for weigh in (partial(window_weights, k=window), _Capped(window=window, cap=cap))
            ]
        )
    except ShpiError:
        return []
    change = capped.value - free.value
    scale = decisive.value / on_policy(problem).value if decisive.per != "user" else 1.0
    change *= abs(scale)
    large = decisive.lift_error > 0 and abs(change) > 2 * decisive.lift_error
    return [
        Diagnostic(
            name="sensitivity to clipping",
            severity="warning" if large else "fine",
            sentence=f"Capping the largest 1 % of the importance weights would change the lift by "
            f"{change:+.4g}, to {decisive.lift + change:+.4g}"
            + (", more than chance explains: a few decisions determine it." if large else "."),
            figure=change,
            threshold=2 * decisive.lift_error,
            estimator=decisive.name,
        )
    ]


@dataclass(frozen=True, kw_only=True)
class _Capped:
    """Importance weights, capped."""

    window: int | None
    cap: float  # a quantile of the weights in a sample of the users

    def __call__(self, chunk: Chunk) -> StepWeights:
        weights, cap = window_weights(chunk, self.window), self.cap
        tail = weights.tail
        return StepWeights(
            rows=np.minimum(weights.rows, cap),
            after=np.minimum(weights.after, cap),
            tail_length=weights.tail_length,
            tail=None if tail is None else lambda j: np.minimum(tail(j), cap),
        )


# ---------------------------------------------------------------------- late value


def about_late_value(problem: Problem, estimate: Estimate) -> list[Diagnostic]:
    """The share of the value at steps with too few effective users; for weights of the whole horizon only.

    The effective sample size is a mean over all steps, and users who left count at every later step, rightly:
    they are known to bring nothing there. But the rewards at late steps come from the remaining users alone.
    If 1 % of the users (bots, fans) have hundreds of decisions, the weights of their long histories are
    almost all 0; in such logs, 95 % intervals over users covered 72 %.
    """
    if estimate.weights is None or estimate.steps is not None or problem.horizon < 2:
        return []
    chunk = problem.sample()
    steps = chunk.steps
    log_weights = window_weights(chunk, None).rows
    top = np.full(problem.horizon, -np.inf)
    np.maximum.at(top, steps, log_weights)
    with np.errstate(invalid="ignore"):  # where all weights of a step are 0
        weights = np.nan_to_num(np.exp(log_weights - top[steps]))
    sums, squares = (np.bincount(steps, weights=w, minlength=problem.horizon) for w in (weights, weights**2))
    # (sum w)^2 / sum w^2 of the decisions at each step [H]; 0 where there are none
    effective = np.divide(sums**2, squares, out=np.zeros(problem.horizon), where=squares > 0)
    effective *= problem.users / chunk.logs.n_users
    rewards = problem.discounts[steps] * np.abs(chunk.rewards)
    value = np.bincount(steps, weights=rewards, minlength=problem.horizon)  # [H]
    total = float(value.sum())
    thin = effective < LEAST_EFFECTIVE
    share = float(value[thin].sum()) / total if total > 0 else 0.0
    sentence = f"{share:.0%} of all reward comes at decisions that fewer than {LEAST_EFFECTIVE:.0f} "
    sentence += "effective users reach"
    if share > LATE:
        first = int(np.flatnonzero(thin)[0]) + 1
        sentence += (
            f", from decision {first} on: a few users with long histories dominate, and the interval may be "
            "too narrow. Use a shorter horizon or window, or leave out bots"
        )
    return [
        Diagnostic(
            name="late value",
            severity="warning" if share > LATE else "fine",
            sentence=f"{sentence}.",
            figure=share,
            threshold=LATE,
            estimator=estimate.name,
        )
    ]
