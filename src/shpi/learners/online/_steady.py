r"""A termination bonus that needs little data: the value of a user at the present reward rate.

    V(x) = level + slope V_g(x),        g <= gamma,       0 <= slope <= (1 - g) / (1 - gamma)

(1 - g) V_g(x) is the mean reward of about the next 1 / (1 - g) decisions: the paper's rate c(x_u), learned.
It is far easier to estimate than V_gamma, since the noise of a value grows with its horizon. The slope
extrapolates this rate to the long horizon. It is (1 - g) / (1 - gamma) if contexts do not change, and about 1
if they change fast or users leave soon. So it is estimated too: level and slope are the LSTD solution at
gamma over the single feature V_g. With the slope fixed at its largest value, users of the storefront, who
leave after a few sessions, were valued ten times too high, and the policy kept them without selling anything.
``g = gamma`` is the plain value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features.parts import saveable
from shpi.protocols import Float64Array, FloatArray
from shpi.values import LSTD, FittedValue, LinearValue, ValueModel
from shpi.values._lstd.moments import LstdSums
from shpi.values.base import checked_gamma

RIDGE = 1.0  # in decisions: keeps the slope finite where V_g is constant


@saveable("learners/scaled-value")
@dataclass(frozen=True, kw_only=True, eq=False)
class Scaled:
    """V(x) = level + slope * value(x)."""

    value: FittedValue
    slope: float
    level: float = 0.0

    def __call__(self, contexts: FloatArray) -> Float64Array:
        """Values [n]."""
        return self.level + self.slope * self.value(contexts)


@dataclass(frozen=True, eq=False)
class _AsFeature:
    """phi(x) = V_g(x)."""

    value: FittedValue
    width_in: int
    width: int = 1

    def transform(self, contexts: FloatArray) -> Float64Array:
        return self.value(contexts)[:, None]


@dataclass(frozen=True, kw_only=True)
class Steady:
    """The value at the present reward rate; see the top of this file.

    Args:
        model: estimates V_g.
        discount: g; a learner with a smaller gamma uses its own.
        lookahead: steps of observed rewards that the slope is estimated from, as in `LSTD`.
    """

    model: ValueModel = field(default_factory=LSTD)
    discount: float = 0.9
    lookahead: int = 20

    def __post_init__(self) -> None:
        if not 0 <= self.discount < 1:
            raise ConfigError(expected="a discount in [0, 1)", found=str(self.discount), where="Steady")
        if self.lookahead < 1:
            raise ConfigError(expected="a lookahead of at least 1", found=str(self.lookahead), where="Steady")

    def fit(self, logs: LoggedData, *, gamma: float, seed: int) -> FittedValue:
        """V of the policy that wrote the log."""
        short = min(self.discount, checked_gamma(gamma))
        value = self.model.fit(logs, gamma=short, seed=seed)
        if short == gamma:
            return value
        sums = LstdSums.of(
            logs, _AsFeature(value, logs.contexts.shape[1]), gamma=gamma, lookahead=self.lookahead
        )
        slope = float(np.clip(sums.solve(RIDGE)[1], 0.0, (1 - short) / (1 - gamma)))
        system = sums.gram - sums.cross
        level = float((sums.target[0] - slope * system[0, 1]) / system[0, 0])
        if isinstance(value, LinearValue):
            theta = slope * value.theta
            theta[0] += level
            return LinearValue(features=value.features, theta=theta)
        return Scaled(value=value, slope=slope, level=level)
