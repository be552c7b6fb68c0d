r"""The k-step estimator with k = H, for a policy (as a witness) and for its mixtures with mu (a first step).

    pi_x(a|x) = (1 - x) mu(a|x) + x pi(a|x),      ratio = 1 - x + x pi/mu

It is unbiased for any V (`shpi.ope.estimators.kstep`), and V = V^mu is fitted once for all x. Only the ratios
of taken actions are needed.

**The witness** is x = 1. WDR corrects a model of pi. If the weights leave few effective users, much of the
model's error stays uncorrected, and a policy that was learned from such a model looks as good as the model
promised. With harm that comes after 10 to 30 decisions and 40 to 170 effective users, WDR's estimate was
above the truth by one standard error on average, the witness by 0.2: it falls back to mu, not to a model of
pi. Both must prove a lift, so the witness can only prevent a ship.

**The first step** is the largest x that is proven. For a policy far from mu, importance weights over many
decisions leave no effective users; those of its mixtures vary less. A mixture can be served: toss a coin at
each decision, and log pi_x. Its log then says more about pi than the present one.

All shares with enough effective users are tested together, at a level at which all bounds hold at once
(`shpi.ope.candidates.joint_level`), so one may choose freely among the proven ones. The estimates are highly
correlated, so this costs little: a quantile of about 1.8 instead of 1.64. A large share may be proven without
a small one: the lift may be nonlinear in x, and a little of a policy worse than all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from shpi.errors import ShpiError
from shpi.ope.diagnostics.weights import has_enough_support
from shpi.ope.estimators.importance import prefix_sums
from shpi.ope.estimators.kstep import WeightedDeltas
from shpi.ope.estimators.robust import cross_fits
from shpi.ope.inference.per import counted_per
from shpi.ope.inference.weighting import StepWeights
from shpi.ope.problem import Chunk, Problem, once
from shpi.ope.results import Estimate, MixtureEstimate, Per
from shpi.protocols import Float64Array

SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)


@dataclass(frozen=True, kw_only=True)
class WholeHorizon:
    """The k-step estimator with k = H for (1 - share) mu + share pi."""

    share: float = 1.0

    @property
    def name(self) -> str:
        """The name of the estimator, with the share if it is below 1."""
        return "SHPI(k=all)" if self.share == 1 else f"SHPI(k=all) for {100 * self.share:.3g} % of the policy"

    def estimate(self, problem: Problem) -> Estimate:
        """See the top of this file."""
        weighted = WeightedDeltas(
            fits=cross_fits(problem, "state", None, None),
            counted=problem,
            weigh=self._weights,
            key=("share", self.share),
        )
        return weighted.estimate(self.name, consistent=True)

    def _weights(self, chunk: Chunk) -> StepWeights:
        """The weights w_{0:t} of the mixture."""
        with np.errstate(divide="ignore"):  # log 0 where the policy itself never takes the logged action
            ratios: Float64Array = np.log1p(self.share * np.expm1(chunk.log_ratios))
        rows = prefix_sums(chunk, ratios)
        return StepWeights(rows=rows, after=rows[chunk.logs.offsets[1:] - 1])


@once
def whole(problem: Problem, per: Per, share: float = 1.0) -> Estimate | None:
    """The estimate over the whole horizon, computed once; None if the estimator fails on this log."""
    try:
        return counted_per(WholeHorizon(share=share), per).estimate(problem)
    except ShpiError:
        return None


@once
def mixtures(problem: Problem, per: Per) -> tuple[MixtureEstimate, ...]:
    """The estimates of all shares with enough effective users over the whole horizon, smallest first."""
    estimates = problem.all_of([partial(whole, problem, per, share) for share in SHARES])
    return tuple(
        MixtureEstimate(share=share, estimate=estimate)
        for share, estimate in zip(SHARES, estimates, strict=True)
        if estimate is not None and has_enough_support(problem, estimate)
    )


def largest_mixture(problem: Problem, answer: Estimate, per: Per) -> MixtureEstimate | None:
    """The mixture with the largest share; None if there is none, or if the answer has an interval itself."""
    if (answer.consistent and has_enough_support(problem, answer)) or problem.propensity_mode == "absent":
        return None
    return next(reversed(mixtures(problem, per)), None)
