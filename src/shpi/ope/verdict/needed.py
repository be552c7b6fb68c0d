r"""How many users would prove a margin, if it is what it seems.

The error falls with the root of the users, so a true margin m is proven with probability ``power`` by

    U ((z_confidence + z_power) error / m)^2

users. The estimate of m is itself noise, and one that is promising is more often too high than too low: taken
at face value, logs of that size proved it in 68 % where 80 % was promised (margins drawn from a normal
distribution of two standard errors). So with t = margin/error the margin is shrunk by t^2/(1 + t^2), which
gave 84 %. A range says how far the estimate can be believed: the same with a margin one standard error
larger, and one smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shpi._core.distributions import normal_quantile


@dataclass(frozen=True, kw_only=True)
class Factors:
    """So many times the users of the log."""

    plain: float  # by the estimate as it is
    likely: float  # by the shrunken estimate
    least: float  # if the margin is one standard error above its estimate
    most: float  # if it is one below; infinite if nothing is left of it

    def worse(self, other: Factors) -> Factors:
        """The larger of both, end by end."""
        return Factors(
            plain=max(self.plain, other.plain),
            likely=max(self.likely, other.likely),
            least=max(self.least, other.least),
            most=max(self.most, other.most),
        )

    @classmethod
    def certain(cls, factor: float) -> Factors:
        """Where no estimate is involved."""
        return cls(plain=factor, likely=factor, least=factor, most=factor)

    @classmethod
    def of(cls, margin: float, error: float, confidence: float, power: float) -> Factors:
        """For a margin with its standard error."""
        z = float(normal_quantile(confidence) + normal_quantile(power))

        def factor(t: float) -> float:
            return math.inf if t <= 0 else min(z / t, 1e100) ** 2

        t = margin / error if error > 0 else math.copysign(math.inf, margin)
        if math.isinf(t):
            return cls.certain(0.0 if t > 0 else math.inf)
        return cls(plain=factor(t), likely=factor(t**3 / (1 + t**2)), least=factor(t + 1), most=factor(t - 1))


def rounded_up(users: float) -> int:
    """To two digits: more would pretend a precision that the estimate does not have."""
    unit = 10 ** max(math.floor(math.log10(max(users, 1))) - 1, 0)
    return int(math.ceil(users / unit) * unit)
