"""SHPI with the smallest and the largest horizon, under their usual names.

    PolicyGradientAdvantage        k = 1: A^mu, what policy gradients and TRPO-like methods estimate
    ConservativePolicyIteration    k = T: A^pi (up to a constant in a), with importance weights to the end

Both are `OfflineSHPI` with a fixed horizon: value, regression, candidates and test are the same. With
``paper=True`` they are `OfflineSHPI.paper()` with a fixed horizon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shpi._core.executors import Executor
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.errors import ConfigError
from shpi.learners.base import from_log
from shpi.learners.improved import ImprovedPolicy
from shpi.learners.offline import OfflineSHPI


@dataclass(frozen=True, kw_only=True)
class PolicyGradientAdvantage:
    """A^mu: one step of pi, then the bonus: the value of mu, and in later rounds that of the champion.

    Args:
        gamma: the discount.
        paper: start from `OfflineSHPI.paper()` rather than from the defaults.
        settings: further settings of `OfflineSHPI`, all but the horizon.
        seed: random seed.
    """

    gamma: float = 0.99
    paper: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self.shpi()

    def shpi(self) -> OfflineSHPI:
        """The equivalent `OfflineSHPI`."""
        return configured({"k": 1}, self.settings, paper=self.paper, gamma=self.gamma, seed=self.seed)

    def fit(self, logs: LoggedData | ShardedLog, *, executor: Executor | None = None) -> ImprovedPolicy:
        """Policy iteration with one-step advantages."""
        return self.shpi().fit(logs, executor=executor)


@dataclass(frozen=True, kw_only=True)
class ConservativePolicyIteration:
    """A^pi: every window goes to the end of its trajectory, and the bonus is paid only where the log stops.

    Args:
        gamma: the discount.
        paper: start from `OfflineSHPI.paper()` rather than from the defaults.
        settings: further settings of `OfflineSHPI`, all but the horizon.
        seed: random seed.
    """

    gamma: float = 0.99
    paper: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self.shpi(1)

    def shpi(self, longest: int) -> OfflineSHPI:
        """The equivalent `OfflineSHPI`, for trajectories of at most ``longest`` decisions."""
        return configured({"k": longest}, self.settings, paper=self.paper, gamma=self.gamma, seed=self.seed)

    @from_log
    def fit(self, logs: LoggedData) -> ImprovedPolicy:
        """Policy iteration with advantages over whole trajectories."""
        return self.shpi(int(np.diff(logs.offsets).max())).fit(logs)


def configured(
    fixed: Mapping[str, Any], settings: Mapping[str, Any], *, paper: bool, gamma: float, seed: int
) -> OfflineSHPI:
    """`OfflineSHPI` with the fixed settings of a named learner and those of the user, which may not clash."""
    taken = sorted({*fixed, "gamma", "seed"} & set(settings))
    if taken:
        raise ConfigError(
            expected="settings of OfflineSHPI that the name leaves open",
            found=", ".join(taken),
            remedy="use OfflineSHPI itself to set these",
        )
    make = OfflineSHPI.paper if paper else OfflineSHPI
    try:
        return make(**{**settings, **fixed, "gamma": gamma, "seed": seed})
    except TypeError as error:
        raise ConfigError(expected="settings of OfflineSHPI", found=str(error)) from None
