r"""Test whether one coin was thrown for all users of a day. Then days, not users, are the observations.

With S_d the sum of the residuals e of one day and V_d the sum of their squares, sum_d S_d^2 / V_d is about
chi-squared with one degree of freedom per day if every decision was its own draw. The correlation within days
is sum_d (S_d^2 - V_d) / sum_d (n_d - 1) V_d: 1 if each day has one arm, near 0 if probabilities merely drift.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi._core.distributions import chi_square_tail
from shpi.data.durations import MICROSECONDS
from shpi.ope.checks.balance.residuals import Groups
from shpi.ope.problem import Problem, once
from shpi.ope.results import Diagnostic

DAY = MICROSECONDS["d"]
LEVEL = 1e-3  # significance level: probability of a false alarm
SHARED = 0.2  # correlation within days above which they count as switched as a whole
LEAST_PER_DAY = 5.0  # decisions; days with fewer are left out
FEW_DAYS = 10  # days; with fewer, no standard error can be estimated


@dataclass(frozen=True, kw_only=True)
class Days:
    """Whether decisions of the same day were drawn together."""

    count: int  # number of days
    correlation: float  # of the residuals within days
    p_value: float  # if every decision was its own draw
    switched: bool  # whether the users of a day share their arm

    def diagnostic(self) -> Diagnostic:
        """The diagnostic of days that were switched as a whole."""
        few = self.count < FEW_DAYS
        return Diagnostic(
            name="switched by day",
            severity="fatal" if few else "warning",
            sentence=f"The users of a day got the same arm (correlation {self.correlation:.2f} within "
            f"days): the bounds count the {self.count} days, not the users, as independent."
            + (f" Fewer than {FEW_DAYS} days are too few." if few else ""),
            figure=self.correlation,
            threshold=SHARED,
        )


@once
def days_of(problem: Problem) -> Days | None:
    """The correlation within days; None without calendar times, with one day, or with too few decisions."""
    sample = problem.sample()
    if sample.logs.time_unit != "us":
        return None
    days, code = np.unique(sample.logs.times // DAY, return_inverse=True)
    if len(days) < 2:
        return None
    columns = [
        [np.bincount(code, weights=w, minlength=len(days)) for w in (e, e**2, np.ones_like(e))]
        for e in Groups.of(problem).residuals(sample).T
    ]
    sums, squares, counts = (np.stack(each, axis=1) for each in zip(*columns, strict=True))  # [D, G]
    enough = (squares > 0) & (counts >= LEAST_PER_DAY)
    if not enough.any():
        return None
    statistic = np.where(enough, sums**2 / np.where(enough, squares, 1.0), 0.0).sum(axis=0)  # [G]
    p_values = chi_square_tail(statistic, np.maximum(enough.sum(axis=0), 1))
    pairs = np.where(enough, (sums**2 - squares), 0.0).sum(axis=0)
    possible = np.where(enough, (counts - 1) * squares, 0.0).sum(axis=0)
    correlation = pairs / np.maximum(possible, 1e-300)
    g = int(np.argmax(correlation))
    p_value, shared = float(min(p_values[g] * len(p_values), 1.0)), float(correlation[g])
    switched = p_value < LEVEL and shared > SHARED
    return Days(count=len(days), correlation=shared, p_value=p_value, switched=switched)
