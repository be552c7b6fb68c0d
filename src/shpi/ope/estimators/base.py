"""What an estimator is, and how its numbers become an `Estimate`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from shpi.ope.checks.clusters import found_clusters
from shpi.ope.estimators.baseline import on_policy
from shpi.ope.inference.intervals import standard_error
from shpi.ope.problem import Problem
from shpi.ope.results import Estimate, Weights
from shpi.protocols import Float64Array

LEAST_EFFECTIVE = 30.0  # effective users below which an estimator decides nothing
ROUNDING = 1e-8  # of a value: smaller differences come from solving, not from the log


@runtime_checkable
class Estimator(Protocol):
    """The configuration of an estimator. ``estimate`` looks at the problem and changes nothing."""

    @property
    def name(self) -> str:
        """Unique within an evaluation."""
        ...

    def estimate(self, problem: Problem) -> Estimate:
        """J(pi), and its lift over J(mu) from the same users."""
        ...


def finish(
    name: str,
    problem: Problem,
    value: float,
    influence: Float64Array,
    weights: Weights | None,
    notes: tuple[str, ...] = (),
    *,
    baseline: tuple[float, Float64Array] | None = None,
    steps: int | None = None,
    consistent: bool = False,
) -> Estimate:
    """An estimate from a value and its influences; the lift is paired with the users' own J(mu).

    Args:
        name: name of the estimator.
        problem: what was estimated.
        value: J(pi).
        influence: influence of every user on the value [U].
        weights: summary of the importance weights, if any.
        notes: what was assumed or done on the way.
        baseline: another baseline and its influences, in place of J(mu).
        steps: for how many decisions it follows what a decision changes; None, or as many as there are: all.
        consistent: its bias vanishes with more users, whatever a model says, and its interval holds.
    """
    if baseline is None:
        base = on_policy(problem)
        baseline = (base.value, base.influence)
    followed = steps if steps is not None and steps < problem.horizon else None
    of_lift = _without_rounding(influence - baseline[1], float(np.abs(influence).max()))
    clusters = found_clusters(problem)
    if clusters is not None:  # users of one day share a coin: the error that days make
        influence, of_lift = clusters.enlarged(influence), clusters.enlarged(of_lift)
    lift = float(_without_rounding(np.array(value - baseline[0]), abs(value)))
    return Estimate(
        name=name,
        value=value,
        baseline=baseline[0],
        lift=lift,
        value_error=standard_error(influence),
        lift_error=standard_error(of_lift),
        value_interval=problem.interval(value, influence),
        lift_interval=problem.interval(lift, of_lift),
        effective_users=float(problem.users) if weights is None else weights.ess,
        influence_value=_frozen(influence),
        influence_lift=_frozen(of_lift),
        weights=weights,
        notes=notes,
        steps=followed,
        consistent=consistent and followed is None,
    )


def apart(first: Estimate, second: Estimate) -> float:
    """(lift - other lift) in standard errors of the difference."""
    error = standard_error(first.influence_lift - second.influence_lift)
    gap = first.lift - second.lift
    scale = max(abs(first.value), abs(first.baseline))
    if abs(gap) <= ROUNDING * scale:
        return 0.0
    return gap / error if error > 1e-12 * scale else float(np.copysign(np.inf, gap))


def _without_rounding(difference: Float64Array, scale: float) -> Float64Array:
    """0 where only rounding is left of a difference: pi = mu must not look like a tiny, certain gain."""
    return np.where(np.abs(difference) <= 1e-12 * scale, 0.0, difference)


def _frozen(values: Float64Array) -> Float64Array:
    copy = np.array(values, dtype=np.float64)
    copy.setflags(write=False)
    return copy
