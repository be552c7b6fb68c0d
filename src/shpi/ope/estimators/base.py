"""The interface of estimators, and how a value and its influences become an `Estimate`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from shpi.features.parts import frozen_array
from shpi.ope.checks.clusters import found_clusters
from shpi.ope.estimators.baseline import on_policy
from shpi.ope.inference.intervals import standard_error
from shpi.ope.problem import Problem
from shpi.ope.results import Estimate, Weights
from shpi.protocols import Float64Array

LEAST_EFFECTIVE = 30.0  # effective users; with fewer, an estimator cannot carry a decision
ROUNDING = 1e-8  # relative to a value; smaller differences are rounding errors


@runtime_checkable
class Estimator(Protocol):
    """The configuration of an estimator. ``estimate`` does not change the problem."""

    @property
    def name(self) -> str:
        """The name of the estimator, unique within an evaluation."""
        ...

    def estimate(self, problem: Problem) -> Estimate:
        """Estimate J(pi), and its lift over J(mu) of the same users."""
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
    """Make an estimate from a value and its influences; the lift is the paired difference to J(mu).

    Args:
        name: name of the estimator.
        problem: the evaluation problem.
        value: J(pi).
        influence: influence of every user on the value [U].
        weights: summary of the importance weights, if any.
        notes: assumptions and adjustments to report.
        baseline: another baseline and its influences, in place of J(mu).
        steps: number of decisions for which the effects of a decision are followed; None: all.
        consistent: whether the bias vanishes with more users even if a model is wrong, and intervals hold.
    """
    if baseline is None:
        base = on_policy(problem)
        baseline = (base.value, base.influence)
    followed = steps if steps is not None and steps < problem.horizon else None
    # Differences at the level of rounding are 0: pi = mu must not look like a tiny, certain gain.
    lift, of_lift = value - baseline[0], influence - baseline[1]
    lift = 0.0 if abs(lift) <= 1e-12 * abs(value) else lift
    of_lift = np.where(np.abs(of_lift) <= 1e-12 * float(np.abs(influence).max()), 0.0, of_lift)
    clusters = found_clusters(problem)
    if clusters is not None:  # users of one day share an arm: use the standard error over days
        influence, of_lift = clusters.enlarged(influence), clusters.enlarged(of_lift)
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
        influence_value=frozen_array(influence, "influences", ndim=1),
        influence_lift=frozen_array(of_lift, "influences", ndim=1),
        weights=weights,
        notes=notes,
        steps=followed,
        consistent=consistent and followed is None,
    )


def standardised_difference(first: Estimate, second: Estimate) -> float:
    """(lift - other lift), in standard errors of the difference."""
    error = standard_error(first.influence_lift - second.influence_lift)
    gap = first.lift - second.lift
    scale = max(abs(first.value), abs(first.baseline))
    if abs(gap) <= ROUNDING * scale:
        return 0.0
    return gap / error if error > 1e-12 * scale else float(np.copysign(np.inf, gap))
