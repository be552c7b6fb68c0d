"""A score whose ranking of the actions is the same in every context: f(x, a) = c + u'x + v_a."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi.errors import ConfigError
from shpi.features.base import as_matrix
from shpi.features.parts import freeze, saveable
from shpi.protocols import Float32Array, Float64Array, FloatArray


@saveable("policies/shared-scorer")
@dataclass(frozen=True, kw_only=True, eq=False)
class SharedScorer:
    """f(x, a) = ((v_a + c) + u_1 x_1) + u_2 x_2 + …, added in this order and in single precision.

    In exact arithmetic the best action does not depend on x. In single precision small v_a are lost in a
    large c + u'x, and scores become equal; Vowpal Wabbit adds in this order.
    """

    constant: Float32Array  # [1]
    slopes: Float32Array  # [d]
    actions: Float32Array  # [A]

    def __post_init__(self) -> None:
        freeze(self, "constant", "slopes", "actions", ndim=1, dtype=np.float32)
        if len(self.constant) != 1 or not len(self.actions):
            raise ConfigError(
                expected="one constant and at least one action",
                found=f"{len(self.constant)} and {len(self.actions)}",
                where="SharedScorer",
            )

    @property
    def n_actions(self) -> int:
        """|A|."""
        return len(self.actions)

    @property
    def width(self) -> int:
        """The width d of a context."""
        return len(self.slopes)

    def scores(self, contexts: FloatArray) -> Float64Array:
        """Scores [n, A], rounded to single precision after every addition."""
        x = as_matrix(contexts, self.width).astype(np.float32)
        total = np.tile(self.actions + self.constant, (len(x), 1))  # [n, A]
        for j in range(self.width):
            total += (self.slopes[j] * x[:, j])[:, None]
        return total.astype(np.float64)
