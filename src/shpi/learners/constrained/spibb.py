r"""SPIBB, safe policy improvement with baseline bootstrapping (Laroche et al. 2019, their Pi_b-SPIBB).

    pi(a|x) = mu(a|x)                            for every a with n(x, a) < N
    the remaining probability goes to            argmax of Q(x, a) over the others

and Q is the value of that policy on the log, by fitted Q iteration. Where the log has few rows, SPIBB
keeps mu. If contexts take few values, the counts, mu and the regression are tables; otherwise counts become
pseudo-counts, as in the authors' SPIBB-DQN.
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
class SPIBB:
    """Improve on mu only where the log has enough data.

    Args:
        gamma: the discount.
        min_count: N, how often an action must have been taken in a context before it may be preferred. 0 is
            fitted Q iteration without any constraint; None takes 10 where contexts are few, and 100 of the
            pseudo-counts elsewhere.
        baseline: mu, if you have it; a clone of the log otherwise.
        oracle: the regression of Q; None for a table where contexts are few and a ridge elsewhere.
        features: features of the pseudo-counts, see `shpi.learners.constrained.baseline.constrain`.
        iterations: iterations of fitted Q iteration, at most.
        tolerance: it stops when V changes by less than this share of its spread.
        seed: random seed.
    """

    gamma: float = 0.99
    min_count: float | None = None
    baseline: Policy | None = None
    oracle: Oracle | None = None
    features: Recipe | FeatureMap | None = None
    iterations: int = 200
    tolerance: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        spell_out(self)
        checked_gamma(self.gamma)
        fine = self.min_count is None or (np.isfinite(self.min_count) and self.min_count >= 0)
        if not fine or self.iterations < 1:
            raise ConfigError(
                expected="a min_count of at least 0 and at least one iteration",
                found=f"{self.min_count}, {self.iterations}",
                where="SPIBB",
            )

    def constraint(self, logs: LoggedData) -> Constraint:
        """The constraint that this log puts on policies."""
        return constrain(
            logs,
            mode="spibb",
            threshold=self.min_count,
            baseline=self.baseline,
            features=self.features,
            seed=self.seed,
        )

    @from_log
    def fit(self, logs: LoggedData) -> SupportLimited:
        """Q iteration under the constraint."""
        rewards_of(logs, "SPIBB", logs.reward_observed)
        return improve_within(
            self.constraint(logs),
            logs,
            self.oracle,
            gamma=self.gamma,
            iterations=self.iterations,
            tolerance=self.tolerance,
            seed=self.seed,
            pessimistic=False,
        )
