r"""MBS, marginalised behaviour support: Q iteration on the support of the log (Liu et al. 2020).

    supported(x, a) = 1[ density of (x, a) in the log >= b ]
    V(x)            = max over supported a of Q(x, a);  a pessimistic constant where nothing is supported
    pi(x)           = argmax over supported a of Q(x, a);  mu where nothing is supported

The density is that of context and action together: mu's likely action is still not supported in a
context that mu hardly ever visits. That is the difference from BCQ, whose filter is mu(a|x). The authors'
rewards are not negative, and their constant is 0; here it is the lowest value that mu has in the log.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features import FeatureMap, Recipe
from shpi.learners._words import spell_out
from shpi.learners.base import from_log, rewards_of
from shpi.learners.constrained.baseline import Constraint, constrain
from shpi.learners.constrained.fitted_q import improve_within
from shpi.oracles import Oracle
from shpi.policies import SupportLimited
from shpi.protocols import Policy
from shpi.values.base import checked_gamma


@dataclass(frozen=True, kw_only=True)
class MBS:
    """Greedy on the support of the log.

    Args:
        gamma: the discount.
        density: b, as a multiple of the density of a log that is spread evenly over contexts and actions.
        baseline: mu, if you have it; a clone of the log otherwise.
        oracle: the regression of Q; None for a table where contexts are few and a ridge elsewhere.
        features: features of the density, see `shpi.learners.constrained.baseline.constrain`.
        iterations: iterations of fitted Q iteration, at most.
        tolerance: it stops when V changes by less than this share of its spread.
        seed: random seed.
    """

    gamma: float = 0.99
    density: float = 0.3
    baseline: Policy | None = None
    oracle: Oracle | None = None
    features: Recipe | FeatureMap | None = None
    iterations: int = 200
    tolerance: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        spell_out(self)
        checked_gamma(self.gamma)
        if not (np.isfinite(self.density) and self.density >= 0) or self.iterations < 1:
            raise ConfigError(
                expected="a density of at least 0 and at least one iteration",
                found=f"{self.density}, {self.iterations}",
                where="MBS",
            )

    def constraint(self, logs: LoggedData) -> Constraint:
        """The constraint that this log puts on policies."""
        return constrain(
            logs,
            mode="mbs",
            threshold=self.density,
            baseline=self.baseline,
            features=self.features,
            seed=self.seed,
        )

    @from_log
    def fit(self, logs: LoggedData) -> SupportLimited:
        """Q iteration over supported actions."""
        rewards_of(logs, "MBS", logs.reward_observed)
        return improve_within(
            self.constraint(logs),
            logs,
            self.oracle,
            gamma=self.gamma,
            iterations=self.iterations,
            tolerance=self.tolerance,
            seed=self.seed,
            pessimistic=True,
        )
