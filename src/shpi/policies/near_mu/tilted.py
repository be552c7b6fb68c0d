r"""A step of any size away from mu: the logging policy, tilted towards actions with high scores.

    pi(a|x) ∝ mu(a|x)^power exp(size f(x, a))

Size 0 and power 1 are mu itself; a growing size approaches the greedy policy on the support of mu, a growing
power mu's most probable action. pi never leaves the support of mu.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi._core.softmax import row_max
from shpi.errors import ConfigError
from shpi.features.parts import saveable
from shpi.policies.base import ScorerPolicyMethods
from shpi.policies.heads import masked_scores, same_actions, softmax
from shpi.policies.scorers import Scorer
from shpi.protocols import BoolArray, Float64Array, FloatArray, Policy


@saveable("policies/tilted")
@dataclass(frozen=True, eq=False, repr=False)
class Tilted(ScorerPolicyMethods):
    """mu with its odds changed by exp(size f), and its own preferences sharpened by a power."""

    scorer: Scorer
    mu: Policy
    size: float
    power: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.size) and self.size >= 0 and np.isfinite(self.power) and self.power >= 1):
            raise ConfigError(
                expected="a size of at least 0 and a power of at least 1",
                found=f"{self.size}, {self.power}",
                where="Tilted",
            )
        same_actions(self.scorer, self.mu)

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """The tilted policy, [n, A]."""
        mu = self.mu.action_probs(contexts, candidates)
        if self.size == 0:
            return tilt(mu, None, 0.0, self.power).astype(np.float64, copy=False)
        scores = masked_scores(self.scorer, contexts, candidates)
        return tilt(mu, scores, self.size, self.power).astype(np.float64, copy=False)


def tilt(mu: FloatArray, scores: FloatArray | None, size: float, power: float) -> FloatArray:
    """pi(a|x) [n, A] from mu [n, A] and f [n, A], in the precision of mu."""
    with np.errstate(divide="ignore"):
        logits = power * np.log(mu)
    if scores is not None and size > 0:
        if not np.isfinite(scores).all():
            scores = np.where(np.isfinite(scores), scores, 0.0)  # not allowed: mu is 0 there
        logits += np.asarray(size, dtype=logits.dtype) * (scores - row_max(scores))
    probs: FloatArray = softmax(logits)
    return probs
