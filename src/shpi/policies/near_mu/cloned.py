"""A clone of the behaviour policy by least squares, and the base class of both clones of mu."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi.errors import ConfigError
from shpi.features.base import FeatureMap
from shpi.features.parts import freeze, saveable
from shpi.policies.base import PolicyMethods
from shpi.policies.near_mu.support import RelativeDensity
from shpi.policies.sampling import check_candidates, mask_probs
from shpi.protocols import BoolArray, Float64Array, FloatArray

__all__ = ["FLOOR", "ClonedPolicy", "LinearClone", "RelativeDensity"]  # the last is here since version 0.1

FLOOR = 1e-6  # smaller least-squares probabilities are raised to this


class LinearClone(PolicyMethods):
    """The weights of a clone of mu with linear scores phi(x)'w_a, checked, and its sizes."""

    weights: Float64Array  # [A, p]
    features: FeatureMap
    seen: BoolArray  # [A]
    n_actions: int  # |A|
    width: int  # d of a context

    def __post_init__(self) -> None:
        freeze(self, "weights", ndim=2)
        if self.weights.shape != (len(self.seen), self.features.width) or not np.any(self.seen):
            raise ConfigError(
                expected=f"weights of shape [A, {self.features.width}] and at least one action seen",
                found=f"shape {self.weights.shape}, {int(np.sum(self.seen))} seen",
            )
        object.__setattr__(self, "n_actions", len(self.weights))
        object.__setattr__(self, "width", self.features.width_in)


@saveable("policies/cloned")
@dataclass(frozen=True, eq=False, repr=False)
class ClonedPolicy(LinearClone):
    """mu(a|x) as a linear regression of the indicator of a: max(phi(x)'w_a, 0), normalised.

    Least squares estimates E[1(a_t = a) | x], which is mu(a|x), in closed form from the sums of a ridge
    regression. ``seen`` holds the actions that the log ever took; the others get probability 0.
    """

    weights: Float64Array  # [A, p]
    features: FeatureMap
    seen: BoolArray  # [A]

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """Probabilities [n, A]; uniform over the candidates where none of them was ever seen."""
        raw = np.maximum(self.features.transform(contexts) @ self.weights.T, FLOOR)
        probs = np.where(self.seen, raw, 0.0)
        mask = check_candidates(candidates, len(probs), self.n_actions)
        if mask is not None:
            probs[~np.any(mask[:, self.seen], axis=1)] = 1.0
        return mask_probs(probs / probs.sum(axis=1, keepdims=True), mask)
