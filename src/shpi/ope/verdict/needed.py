r"""How many users it would take to prove a margin of the estimated size.

The error falls with the square root of the users, so a true margin m is proven with probability ``power`` by

    U ((z_confidence + z_power) error / m)^2

users. The estimate of m is noisy, and a promising one is more often too high than too low: taken at face
value, logs of that size proved it in 68 % instead of 80 % (margins drawn from a normal distribution of two
standard errors). So with t = margin/error the margin is shrunk by the factor t^2/(1 + t^2), which gave 84 %.
The range is the same with a margin one standard error larger, and one smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shpi._core.distributions import normal_quantile


@dataclass(frozen=True, kw_only=True)
class Factors:
    """The users needed, as multiples of the users of the log."""

    plain: float  # with the margin as estimated
    likely: float  # with the shrunken margin
    least: float  # with a margin one standard error larger
    most: float  # with a margin one standard error smaller; infinite if that is not above 0

    def worse(self, other: Factors) -> Factors:
        """The larger of each pair of factors."""
        return Factors(
            plain=max(self.plain, other.plain),
            likely=max(self.likely, other.likely),
            least=max(self.least, other.least),
            most=max(self.most, other.most),
        )

    @classmethod
    def certain(cls, factor: float) -> Factors:
        """The same factor throughout, if no noisy margin is involved."""
        return cls(plain=factor, likely=factor, least=factor, most=factor)

    @classmethod
    def of(cls, margin: float, error: float, confidence: float, power: float) -> Factors:
        """The factors for a margin and its standard error."""
        z = float(normal_quantile(confidence) + normal_quantile(power))

        def factor(t: float) -> float:
            return math.inf if t <= 0 else min(z / t, 1e100) ** 2

        t = margin / error if error > 0 else math.copysign(math.inf, margin)
        if math.isinf(t):
            return cls.certain(0.0 if t > 0 else math.inf)
        return cls(plain=factor(t), likely=factor(t**3 / (1 + t**2)), least=factor(t + 1), most=factor(t - 1))


def rounded_up(users: float) -> int:
    """Round up to two digits; more would suggest a false precision."""
    unit = 10 ** max(math.floor(math.log10(max(users, 1))) - 1, 0)
    return int(math.ceil(users / unit) * unit)
