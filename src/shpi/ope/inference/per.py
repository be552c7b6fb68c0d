"""J per decision or per session: an estimate of the rewards over the same estimator's count of the units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

import numpy as np

from shpi.data.logged import LoggedData
from shpi.data.question.count import in_window
from shpi.errors import ConfigError
from shpi.ope.estimators.base import Estimator, finish
from shpi.ope.problem import Problem, once
from shpi.ope.results import Estimate, Per
from shpi.protocols import Float64Array


@dataclass(frozen=True)
class PerUnit:
    """J per decision or session: the estimated rewards divided by the estimated number of units."""

    estimator: Estimator
    unit: Per = "decision"

    @property
    def name(self) -> str:
        """The name of the estimator."""
        return self.estimator.name

    def estimate(self, problem: Problem) -> Estimate:
        """Estimate both, and linearise the ratio, for the value and for the baseline."""
        top, count = problem.all_of(
            [
                partial(self.estimator.estimate, problem),
                lambda: self.estimator.estimate(counts_of(problem, self.unit)),
            ]
        )
        if min(count.value, count.baseline) <= 0:
            raise ConfigError(expected=f"a positive number of {self.unit}s", found=f"{count.value:.3g}")
        value, baseline = top.value / count.value, top.baseline / count.baseline
        of_value = (top.influence_value - value * count.influence_value) / count.value
        of_base = (
            top.influence_value
            - top.influence_lift
            - baseline * (count.influence_value - count.influence_lift)
        ) / count.baseline
        ratio = finish(
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
        return replace(ratio, per=self.unit)


PerDecision = partial(PerUnit, unit="decision")  # its name in version 0.1


def counted_per(estimator: Estimator, per: Per) -> Estimator:
    """The estimator of J per user, decision or session."""
    return estimator if per == "user" else PerUnit(estimator, per)


def one_per_session(logs: LoggedData) -> Float64Array:
    """The metric whose sum is the number of sessions [n]: 1 where a session starts."""
    starts = np.zeros(len(logs))
    starts[logs.session_offsets[:-1]] = 1.0
    return starts * in_window(logs)


# The metrics whose sums are the numbers of decisions and of sessions.
COUNTS: dict[Per, Callable[[LoggedData], Float64Array]] = {
    "decision": in_window,
    "session": one_per_session,
}


@once
def counts_of(problem: Problem, unit: Per) -> Problem:
    """The same problem with the number of decisions or sessions as the metric."""
    return problem.with_metric(COUNTS[unit])


def check_per(per: str, where: str = "") -> None:
    """Raise an error if the unit is unknown."""
    if per not in get_args(Per):
        raise ConfigError(expected="per 'user', 'decision' or 'session'", found=repr(per), where=where)


def is_per_decision(problem: Problem, estimate: Estimate) -> bool:
    """Whether J is per decision; since version 0.2 use ``estimate.per``."""
    return estimate.per == "decision"
