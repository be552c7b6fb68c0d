r"""SLOPE (Su, Srinath and Krishnamurthy 2020): a data-driven trade-off of bias against variance.

The candidates are ordered from the least biased, and most noisy, to the most biased. With w_i the half-width
of candidate i's interval, the chosen one is the last i for which, for all j before it,

    |lift_i - lift_j| <= w_i + (sqrt(6) - 1) w_j      (Tucker and Lee 2021),     and     <= e_ij

As long as a difference can be noise, the less noisy candidate is preferred; the first one that is too far off
must be biased, and so are those after it. The first bound is the published one. It is generous, because it
uses only each candidate's own error. But the candidates share their users, so the influences give the
standard error e_ij of the difference itself, which is often much smaller. The paper leaves the choice of k
open and suggests this rule.

The estimate and its interval are those of the chosen candidate. They do not account for the choice, and a
bias within the noise of the unbiased candidates remains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shpi.errors import ConfigError, ShpiError
from shpi.ope.estimators.base import Estimator
from shpi.ope.estimators.kstep import KStepSHPI
from shpi.ope.inference.intervals import standard_error
from shpi.ope.problem import Problem
from shpi.ope.results import Estimate

STEPS = (1, 2, 4, 8, 16, 32, 64, 128)  # k of the k-step estimators to choose among
_FACTOR = math.sqrt(6) - 1


@dataclass(frozen=True, kw_only=True)
class SLOPE:
    """A data-driven choice among estimators.

    Args:
        candidates: estimators from the least to the most biased; None: `KStepSHPI` for k = H, …, 8, 4, 2, 1.
        name: name of the estimator.
    """

    candidates: tuple[Estimator, ...] | None = None
    name: str = "SLOPE"

    def __post_init__(self) -> None:
        if self.candidates is not None and not self.candidates:
            raise ConfigError(expected="at least one candidate", found="none", where="SLOPE")

    def estimate(self, problem: Problem) -> Estimate:
        """The estimate of the chosen candidate, under the name of this estimator."""
        estimates = self.estimates(problem)
        chosen = estimates[select(estimates)]
        return replace(chosen, name=self.name, notes=(*chosen.notes, f"chose {chosen.name}"))

    def estimates(self, problem: Problem) -> list[Estimate]:
        """The estimates of all candidates that succeed, in order."""
        candidates = self.candidates if self.candidates is not None else default_candidates(problem)
        estimates: list[Estimate] = []
        error: ShpiError | None = None
        for candidate in candidates:
            try:
                estimates.append(candidate.estimate(problem))
            except ShpiError as failure:  # such as no overlap over the whole horizon
                error = error or failure
        if not estimates and error is not None:
            raise error
        return estimates


def default_candidates(problem: Problem) -> tuple[KStepSHPI, ...]:
    """The k-step estimators for k = H and the powers of two below it, largest first."""
    steps = [k for k in STEPS if k < problem.horizon]
    return tuple(KStepSHPI(k=k) for k in (problem.horizon, *reversed(steps)))


def select(estimates: Sequence[Estimate]) -> int:
    """The index of the chosen candidate. Candidates noisier than an accepted earlier one are skipped."""
    widths = [estimate.lift_interval.width / 2 for estimate in estimates]
    agreeing = [0]
    for i in range(1, len(estimates)):
        if widths[i] > min(widths[j] for j in agreeing):
            continue
        if not all(_close(estimates[i], estimates[j], widths[i], widths[j]) for j in agreeing):
            break
        agreeing.append(i)
    return agreeing[-1]


def _close(first: Estimate, second: Estimate, width: float, second_width: float) -> bool:
    """Whether the difference of two estimates can be noise."""
    apart = abs(first.lift - second.lift)
    error = standard_error(first.influence_lift - second.influence_lift)
    return apart <= min(width + _FACTOR * second_width, error)
