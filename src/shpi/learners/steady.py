r"""A termination bonus that can be estimated from little: the worth of a user who goes on as now.

    V(x) = (1 - g) / (1 - gamma) V_g(x),        g <= gamma

(1 - g) V_g(x) is the mean reward of about the next 1 / (1 - g) decisions. Multiplied by 1 / (1 - gamma) it is
what they are worth if they are repeated for good: the paper's rate c(x_u), learned. Where contexts change
slowly, V_gamma is this function up to a constant, and V_g is far easier to estimate, since the noise of a
value grows with its horizon. Where they change fast the far future is the same from everywhere, and the bonus
is too large by the factor in front. ``g = gamma`` is the plain value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features.parts import saveable
from shpi.protocols import Float64Array, FloatArray
from shpi.values import LSTD, FittedValue, LinearValue, ValueModel
from shpi.values.base import checked_gamma


@saveable("learners/scaled-value")
@dataclass(frozen=True, kw_only=True, eq=False)
class Scaled:
    """V(x) = factor * value(x)."""

    value: FittedValue
    factor: float

    def __call__(self, contexts: FloatArray) -> Float64Array:
        """Values [n]."""
        return self.factor * self.value(contexts)


@dataclass(frozen=True, kw_only=True)
class Steady:
    """The value of going on at the present rate; see the top of this file.

    Args:
        model: estimates V_g.
        discount: g; a learner with a smaller gamma uses its own.
    """

    model: ValueModel = field(default_factory=LSTD)
    discount: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.discount < 1:
            raise ConfigError(expected="a discount in [0, 1)", found=str(self.discount), where="Steady")

    def fit(self, logs: LoggedData, *, gamma: float, seed: int) -> FittedValue:
        """V of the policy that wrote the log."""
        short = min(self.discount, checked_gamma(gamma))
        factor = (1.0 - short) / (1.0 - gamma)
        value = self.model.fit(logs, gamma=short, seed=seed)
        if isinstance(value, LinearValue):
            return LinearValue(features=value.features, theta=factor * value.theta)
        return Scaled(value=value, factor=factor)
