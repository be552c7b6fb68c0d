"""J per decision: any estimator, divided by its own estimate of how many decisions there would be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.ope.estimators.base import Estimator, finish
from shpi.ope.estimators.baseline import on_policy
from shpi.ope.problem import Problem
from shpi.ope.results import Estimate
from shpi.protocols import Float64Array


@dataclass(frozen=True)
class PerDecision:
    """J per decision: the estimate for the rewards over the same estimate for rewards of 1."""

    estimator: Estimator

    @property
    def name(self) -> str:
        """That of the estimator."""
        return self.estimator.name

    def estimate(self, problem: Problem) -> Estimate:
        """Both estimates, and the linearised ratio for value and baseline alike."""
        top = self.estimator.estimate(problem)
        count = self.estimator.estimate(problem.memo("count", lambda: problem.with_metric(one_per_decision)))
        if min(count.value, count.baseline) <= 0:
            raise ConfigError(expected="a positive number of decisions", found=f"{count.value:.3g}")
        value, baseline = top.value / count.value, top.baseline / count.baseline
        of_value = (top.influence_value - value * count.influence_value) / count.value
        of_base = (
            top.influence_value
            - top.influence_lift
            - baseline * (count.influence_value - count.influence_lift)
        ) / count.baseline
        return finish(
            top.name,
            problem,
            value,
            of_value,
            top.weights,
            top.notes,
            baseline=(baseline, of_base),
            steps=top.steps,
            consistent=top.consistent,
        )


def one_per_decision(logs: LoggedData) -> Float64Array:
    """The metric whose sum is the number of decisions [n]."""
    return np.ones(len(logs))


def is_per_decision(problem: Problem, estimate: Estimate) -> bool:
    """Whether J was divided by the decisions: then the baseline is not J(mu)."""
    return not np.isclose(estimate.baseline, on_policy(problem).value, rtol=1e-6, atol=1e-12)
