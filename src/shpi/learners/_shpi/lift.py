r"""How much better than mu, with a bound that holds for all candidates at once.

    lower_i = lift_i - q se_i

q is the quantile of max_i noise_i over all candidates that were tested, from the correlations of the users'
influences, so that the best of many is not called proven for being the best of many. Few users who matter,
or a few with most of the variance, make it a quantile of Student's t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from shpi.learners._shpi.judge import Influence
from shpi.protocols import Float64Array

DRAWS = 4000  # of the maximum over candidates


@dataclass(frozen=True, kw_only=True)
class Lift:
    """What a policy brings per user over mu: discounted rewards from the first decision on."""

    estimate: float
    lower: float  # one-sided, simultaneous over all tests
    standard_error: float
    confidence: float
    tests: int  # over which the bound is simultaneous
    users: int

    @property
    def proven(self) -> bool:
        """Whether the lower bound is above 0."""
        return self.lower > 0

    def __str__(self) -> str:
        return (
            f"lift over the logging policy {self.estimate:+.4g} per user, at least {self.lower:+.4g} "
            f"({self.confidence:.0%}, {self.tests} tests, {self.users:,} users)"
        )


def simultaneous_lifts(tested: Sequence[Influence], confidence: float, seed: int) -> list[Lift]:
    """The lift of every candidate, with lower bounds that hold together."""
    if not tested:
        return []
    parts = np.stack([one.parts.mean(axis=0) for one in tested])  # [tests, users]
    level = _level(parts, confidence, seed)
    users = parts.shape[1]
    return [
        Lift(
            estimate=one.estimate,
            lower=one.estimate - _quantile(level, part) * one.error
            if one.error > 0
            else min(one.estimate, 0.0),
            standard_error=one.error,
            confidence=confidence,
            tests=len(tested),
            users=users,
        )
        for one, part in zip(tested, parts, strict=True)
    ]


def beats(challenger: Influence, champion: Influence, confidence: float) -> bool:
    """Whether the challenger's lift is above the champion's with confidence, on common users."""
    difference = Influence(
        lifts=challenger.lifts - champion.lifts, parts=challenger.parts - champion.parts, mean_ratio=1.0
    )
    quantile = _quantile(confidence, difference.parts.mean(axis=0))
    return difference.estimate - quantile * difference.error > 0


def _level(parts: Float64Array, confidence: float, seed: int) -> float:
    """The level of a single bound at which all of them hold together with ``confidence``."""
    norms = np.linalg.norm(parts, axis=1)
    moving = norms > 0
    if not moving.any():
        return confidence
    directions = parts[moving] / norms[moving, None]
    values, vectors = np.linalg.eigh(directions @ directions.T)
    draws = np.random.default_rng(seed).standard_normal((DRAWS, len(values)))
    noise = (draws * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return float(stats.norm.cdf(np.quantile(noise.max(axis=1), confidence)))


def _quantile(level: float, part: Float64Array) -> float:
    """Student's quantile, with as many degrees of freedom as users make up the variance."""
    square = float(np.sum(part**2))
    if square <= 0:
        return 0.0
    effective = 1.0 / float(np.sum((part**2 / square) ** 2))
    return float(stats.t.ppf(level, max(effective - 1, 1)))
