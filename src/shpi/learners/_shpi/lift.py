r"""The lift over mu, with a bound that holds for tests one after the other.

    lower_i = lift_i - q se_i

q is a quantile of Student's t: where a few users have most of the variance, its degrees of freedom are few.
Every test takes 4/5 of the error that is still allowed. A candidate that is proven costs nothing, since
nothing has gone wrong; one that is not has used its part up. So in all tests together a policy without lift
is called proven no more often than in 1 - confidence of the logs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shpi._core.distributions import degrees_of_freedom, t_quantile
from shpi.learners._shpi.judge import Influence


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

    @classmethod
    def of(cls, influence: Influence, level: float, confidence: float, proven: bool = False) -> Lift:
        """The lift with its bound at a level."""
        return cls(
            estimate=influence.estimate,
            lower=lower_bound(influence, level),
            standard_error=influence.error,
            confidence=confidence,
            tests=1,
            users=influence.parts.shape[1],
            proven=proven,
            outside=influence.outside,
        )

    def promising(self, shorter: Influence) -> Lift:
        """The same lift, which promises no more than pi brings when it is followed for a shorter time."""
        bound = lower_bound(shorter, self.confidence)
        return replace(self, lower=min(self.lower, max(bound, 0.0) if self.proven else bound))

    def __str__(self) -> str:
        return (
            f"lift over the logging policy {self.estimate:+.4g} per user, at least {self.lower:+.4g} "
            f"({self.confidence:.0%}, {self.tests} tests, {self.users:,} users)"
        )


def lower_bound(influence: Influence, level: float) -> float:
    """The one-sided bound of a single candidate."""
    if influence.error <= 0:
        return min(influence.estimate, 0.0)
    freedom = degrees_of_freedom(influence.parts.mean(axis=0))
    return influence.estimate - float(t_quantile(level, freedom)) * influence.error


def beats(challenger: Influence, champion: Influence, confidence: float) -> bool:
    """Whether the challenger's lift is above the champion's with confidence, on common users."""
    return lower_bound(challenger.less(champion), confidence) > 0
