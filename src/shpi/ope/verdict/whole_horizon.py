r"""The k-step estimator with k = H, of a policy and of its mixtures with mu: a witness, and a first step.

    pi_x(a|x) = (1 - x) mu(a|x) + x pi(a|x),      ratio = 1 - x + x pi/mu

It is unbiased whatever V is (`shpi.ope.estimators.kstep`), and V = V^mu is fitted once for all x. Only ratios
of taken actions are needed.

**The witness** is x = 1. WDR corrects a model of the policy. Where weights leave few users, what it cannot
correct stays as the model said, and a policy that was learned from such a model looks as good as it promised:
with harm that comes after 10 to 30 decisions and 40 to 170 effective users, WDR's estimate was above the
truth by one standard error on average, this one by 0.2. It falls back to mu, not to a model of pi. Both must
prove a lift, which can only refuse.

**The first step** is the largest x that is proven. A policy far from mu has importance products over many
decisions that leave no effective users; its mixtures have smaller ones. A mixture can be served: toss a coin
at each decision, and log pi_x. Its log then says more about pi than the one at hand.

All shares whose weights carry an answer are judged together, each at the level at which all of their bounds
hold (`shpi.ope.candidates.joint_level`), so the choice among those that are proven is free. Their estimates
are much alike, so that this costs little: a quantile of about 1.8 instead of 1.64. A small share need not be
proven for a large one to be: the lift may be curved, and a little of a policy worse than all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from shpi.errors import ShpiError
from shpi.ope.diagnostics.weights import carries
from shpi.ope.estimators.importance import prefix_sums
from shpi.ope.estimators.kstep import Deltas, WeightedDeltas
from shpi.ope.inference.per import counted_per
from shpi.ope.inference.weighting import StepWeights
from shpi.ope.problem import Chunk, Problem, once
from shpi.ope.results import Estimate, Lead, Per
from shpi.protocols import Float64Array

SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)


@dataclass(frozen=True, kw_only=True)
class WholeHorizon:
    """The k-step estimator with k = H for (1 - share) mu + share pi."""

    share: float = 1.0

    @property
    def name(self) -> str:
        """What is judged, if it is not the policy itself."""
        return "SHPI(k=all)" if self.share == 1 else f"SHPI(k=all) for {100 * self.share:.3g} % of the policy"

    def estimate(self, problem: Problem) -> Estimate:
        """See the top of this file."""
        weighted = WeightedDeltas(
            deltas=Deltas.of(problem), counted=problem, weigh=self._weights, key=("share", self.share)
        )
        return weighted.estimate(self.name, consistent=True)

    def _weights(self, chunk: Chunk) -> StepWeights:
        """The products w_{0:t} of the mixture's ratios."""
        with np.errstate(divide="ignore"):  # log 0 where the policy itself never takes the logged action
            ratios: Float64Array = np.log1p(self.share * np.expm1(chunk.log_ratios))
        rows = prefix_sums(chunk, ratios)
        return StepWeights(rows=rows, after=rows[chunk.logs.offsets[1:] - 1])


@once
def whole(problem: Problem, per: Per, share: float = 1.0) -> Estimate | None:
    """The estimate over the whole horizon, once for all that ask; None if the log has no answer."""
    try:
        return counted_per(WholeHorizon(share=share), per).estimate(problem)
    except ShpiError:
        return None


@once
def mixtures(problem: Problem, per: Per) -> tuple[Lead, ...]:
    """All shares whose weights carry an answer over the whole horizon, the smallest first."""
    estimates = problem.all_of([partial(whole, problem, per, share) for share in SHARES])
    return tuple(
        Lead(share=share, estimate=estimate)
        for share, estimate in zip(SHARES, estimates, strict=True)
        if estimate is not None and carries(problem, estimate)
    )


def largest_mixture(problem: Problem, per: Per) -> Lead | None:
    """The last of them; None if there is none."""
    return next(reversed(mixtures(problem, per)), None)
