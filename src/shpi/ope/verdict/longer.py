"""The witness: a check of the estimator that decides by the k-step estimator with a larger k.

A k-step estimator leaves out the effects of a decision more than k decisions later and uses V^mu instead. Its
interval covers noise, not this bias. In the storefront (`python -m benchmarks steps`) its 95 % lower bound
was above the true lift in 64 % of the logs in which it decides. The same estimator with a larger k has less
bias, more noise, and a wider interval: the lower of the two bounds was too high in 3 %.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from shpi.errors import ShpiError
from shpi.ope.estimators.baseline import on_policy
from shpi.ope.estimators.kstep import KStepSHPI
from shpi.ope.inference.per import counted_per, counts_of
from shpi.ope.problem import Problem, once
from shpi.ope.results import Estimate, Per

# Effective users that a witness needs: fewer than a deciding estimate, since it can only prevent a ship.
# In 90 logs of the storefront, with other seeds than the benchmark's, the lower of both bounds was above the
# truth in 22 % with 30, in 10 % with 15, in none with 10. Both bounds were above 0 in 100 %, 92 % and 91 %.
LEAST_WITNESS = 10.0


class Preview(NamedTuple):
    """A k-step estimate after its first pass, without standard errors."""

    lift: float
    effective_users: float


@once
def preview(problem: Problem, k: int, per: Per) -> Preview | None:
    """The preview for one k; None if the estimator fails on this log."""
    counted = (problem,) if per == "user" else (problem, counts_of(problem, per))
    try:
        works = [partial(_value_and_baseline, about, k) for about in counted]
        (value, baseline, effective), *number = problem.all_of(works)
    except ShpiError:
        return None
    for more, as_many, _ in number:
        value, baseline = value / more, baseline / as_many
    return Preview(lift=value - baseline, effective_users=effective)


def _value_and_baseline(problem: Problem, k: int) -> tuple[float, float, float]:
    """J(pi) by k steps, J(mu), and the effective users, after the first pass."""
    base, (of_pi, of_mu) = problem.all_of(
        [partial(on_policy, problem), lambda: KStepSHPI(k=k).weighted(problem).summed()]
    )
    return base.value + of_pi.value - of_mu.value, base.value, of_pi.effective_users


@once
def k_step(problem: Problem, k: int, per: Per) -> Estimate | None:
    """The k-step estimate per user, decision or session; None if the estimator fails on this log."""
    try:
        return counted_per(KStepSHPI(k=k), per).estimate(problem)
    except ShpiError:
        return None


def longest(problem: Problem, estimate: Estimate) -> Estimate | None:
    """The k-step estimate with the largest k that leaves `LEAST_WITNESS` effective users.

    k is doubled while enough are left. If twice the k of the estimate is already too much, the increment is
    halved. None if the estimate follows all decisions itself, or if no larger k has enough effective users.
    One pass finds the effective users of all k that may be tried.
    """
    if estimate.steps is None:
        return None
    likely = _likely(estimate.steps, problem.horizon)
    problem.all_of([partial(preview, problem, k, estimate.per) for k in likely])
    carried: list[int] = []
    k, more = estimate.steps, estimate.steps
    while more >= 1 and k < problem.horizon:
        wanted = min(k + more, problem.horizon)
        candidate = preview(problem, wanted, estimate.per)
        if candidate is not None and candidate.effective_users >= LEAST_WITNESS:
            carried.append(wanted)
            k, more = wanted, wanted
        elif not carried:
            more //= 2
        else:
            break
    return next(filter(None, (k_step(problem, k, estimate.per) for k in reversed(carried))), None)


def _likely(k: int, horizon: int) -> list[int]:
    """The k that `longest` may try: k doubled up to the horizon, k plus halved increments, twice those."""
    doubled = [k << j for j in range(1, 64) if k << (j - 1) < horizon]
    smaller = [k + (k >> j) for j in range(1, k.bit_length())]
    return sorted({min(each, horizon) for each in [*doubled, *smaller, *(2 * each for each in smaller)]})
