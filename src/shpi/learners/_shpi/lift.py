r"""The lift over mu, with a bound that holds for tests in order.

    lower_i = lift_i - q se_i

Candidates come in order, from careful to bold. Each is tested at the full level, and what comes after a
failure is not proven: the first candidate without any lift is the only one that can go wrong, so the sequence
errs no more often than one test. q is a quantile of Student's t: where a few users have most of the variance,
its degrees of freedom are few. Candidates outside the sequence share a part of the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shpi._core.distributions import degrees_of_freedom, t_quantile
from shpi.learners._shpi.judge import Influence

SHARE_OF_ORDER = 0.8  # of the level, where candidates outside the sequence are tested too


@dataclass(frozen=True, kw_only=True)
class Lift:
    """The lift of a policy over mu per user: discounted rewards from the first decision on."""

    estimate: float
    lower: float  # one-sided
    standard_error: float
    confidence: float
    tests: int  # how many candidates were tested
    users: int
    proven: bool  # whether the test says that it is above 0
    outside: float = 0.0  # share of estimated visits below 0, beyond mu's own: the policy leaves the log

    def promising(self, shorter: Influence) -> Lift:
        """The same lift, which promises no more than pi brings when it is followed for a shorter time."""
        bound = lower_bound(shorter, self.confidence)
        return replace(self, lower=min(self.lower, max(bound, 0.0) if self.proven else bound))

    def __str__(self) -> str:
        return (
            f"lift over the logging policy {self.estimate:+.4g} per user, at least {self.lower:+.4g} "
            f"({self.confidence:.0%}, {self.tests} tests, {self.users:,} users)"
        )


def ordered_lifts(tested: Sequence[Influence], in_order: int, confidence: float) -> list[Lift]:
    """The lift of every candidate: the first ``in_order`` are a sequence, each other one stands alone."""
    alone = len(tested) - in_order
    share = SHARE_OF_ORDER if alone else 1.0
    lifts, unbroken = [], True
    for i, influence in enumerate(tested):
        level = 1 - (1 - confidence) * (share if i < in_order else (1 - share) / alone)
        lower = lower_bound(influence, level)
        if i < in_order:
            unbroken = unbroken and lower > 0
        lifts.append(
            Lift(
                estimate=influence.estimate,
                lower=lower if unbroken or i >= in_order else min(lower, 0.0),
                standard_error=influence.error,
                confidence=confidence,
                tests=len(tested),
                users=influence.parts.shape[1],
                proven=lower > 0 and (unbroken or i >= in_order),
                outside=influence.outside,
            )
        )
    return lifts


def lower_bound(influence: Influence, level: float) -> float:
    """The one-sided bound of a single candidate."""
    if influence.error <= 0:
        return min(influence.estimate, 0.0)
    freedom = degrees_of_freedom(influence.parts.mean(axis=0))
    return influence.estimate - float(t_quantile(level, freedom)) * influence.error


def beats(challenger: Influence, champion: Influence, confidence: float) -> bool:
    """Whether the challenger's lift is above the champion's with confidence, on common users."""
    return lower_bound(challenger.less(champion), confidence) > 0
