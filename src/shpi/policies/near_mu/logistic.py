"""A logistic policy, the result of behaviour cloning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shpi._core.softmax import Real
from shpi.errors import ConfigError
from shpi.features.base import FeatureMap
from shpi.features.parts import saveable
from shpi.policies.heads import softmax
from shpi.policies.near_mu.cloned import LinearClone
from shpi.policies.sampling import check_candidates
from shpi.protocols import BoolArray, Float64Array, FloatArray


@saveable("policies/logistic")
@dataclass(frozen=True, eq=False, repr=False)
class LogisticPolicy(LinearClone):
    """mu(a|x) = (1 - floor) softmax_a(phi(x)'w_a) + floor / |C| over the |C| candidates ever ``seen``.

    The others get probability 0. The floor is the exploration rate, the same in every context.
    """

    weights: Float64Array  # [A, p]
    features: FeatureMap
    seen: BoolArray  # [A]
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= 1:
            raise ConfigError(expected="a floor in [0, 1]", found=str(self.floor), where="LogisticPolicy")
        super().__post_init__()

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """Probabilities [n, A]; all candidates count where none of them was ever seen."""
        phi = self.features.transform(contexts)
        mask = check_candidates(candidates, len(phi), self.n_actions)
        return self.probs_of(phi @ self.weights.T, mask)

    def probs_of(self, logits: NDArray[Real], mask: BoolArray | None) -> NDArray[Real]:
        """Probabilities [n, A] from phi(x)'w_a [n, A], in their precision."""
        allowed = self.seen[None]  # [1, A], or [n, A] under a mask
        if mask is not None:
            known = mask & self.seen
            allowed = np.where(np.any(known, axis=1, keepdims=True), known, mask)
        probs = softmax(logits if allowed.all() else np.where(allowed, logits, -np.inf))
        if self.floor == 0:
            return probs
        probs *= 1 - self.floor
        probs += self.floor * allowed / allowed.sum(axis=1, keepdims=True)
        return probs
