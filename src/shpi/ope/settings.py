"""Settings that all estimators of one evaluation share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.protocols import Float64Array
from shpi.values.base import checked_gamma

Truncated = Literal["censored", "complete"]
IntervalMethod = Literal["skewed", "t", "heavy", "normal", "bootstrap", "bernstein"]
Errors = Literal["jackknife", "linearised"]
Rewards = str | Callable[[LoggedData], Float64Array]  # a metric of the log, or a function of a log


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Definition of the metric and of the intervals; the same for all estimators.

    Args:
        gamma: the discount, 1 included: the horizon is finite.
        horizon: H; None takes the longest trajectory.
        truncated: how trajectories that stop early count; None: as the log says. See `shpi.ope.problem`.
        confidence: the level of all intervals.
        interval: how they are made; see `shpi.ope.inference.intervals`.
        errors: influence of a user on a self-normalised mean: exact, by leaving the user out ("jackknife"),
            or to first order ("linearised"); see `shpi.ope.inference.steps`.
        folds: nuisance models for a user are fitted without the user's fold.
        seed: random seed of folds, features and bootstraps.
    """

    gamma: float = 1.0
    horizon: int | None = None
    truncated: Truncated | None = None
    confidence: float = 0.95
    interval: IntervalMethod = "skewed"
    errors: Errors = "jackknife"
    folds: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        checked_gamma(self.gamma, below_one=False)
        checks: tuple[tuple[bool, str, Any], ...] = (
            (self.horizon is None or self.horizon >= 1, "a horizon of at least 1", self.horizon),
            (
                self.truncated in (None, *get_args(Truncated)),
                "truncated 'censored' or 'complete'",
                self.truncated,
            ),
            (0.5 <= self.confidence < 1, "confidence in [0.5, 1)", self.confidence),
            (self.interval in get_args(IntervalMethod), f"one of {get_args(IntervalMethod)}", self.interval),
            (self.errors in get_args(Errors), f"one of {get_args(Errors)}", self.errors),
            (self.folds >= 2, "at least 2 folds", self.folds),
        )
        for fine, expected, value in checks:
            if not fine:
                raise ConfigError(expected=expected, found=repr(value), where="evaluate")
