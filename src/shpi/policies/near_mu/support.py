"""Support-limited policies, and measures of how well the log supports (x, a).

A *support* is a scorer whose score is a count or a density of (x, a) in the log. Where it is too low:

    spibb   pi(a|x) = mu(a|x) for every unsupported action; the remaining mass goes to the best supported one
            (Laroche et al. 2019, their Pi_b-SPIBB: never worse than mu by more than the noise of the rest)
    mbs     pi(a|x) = 0 for every unsupported action; greedy among the supported ones
            (after Liu et al. 2020, marginalised behaviour support)

Where nothing is supported, both follow mu.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from shpi.errors import ActionError, ConfigError
from shpi.features.base import FeatureMap, as_matrix
from shpi.features.parts import freeze, saveable
from shpi.policies.base import ScorerPolicyMethods
from shpi.policies.heads import greedy_actions, masked_scores, same_actions
from shpi.policies.scorers import Scorer, checked_scores
from shpi.protocols import BoolArray, Float64Array, FloatArray, IntArray, Policy

Mode = Literal["spibb", "mbs"]
_ROWS = 1_000  # contexts at once


@saveable("policies/support-limited")
@dataclass(frozen=True, eq=False, repr=False)
class SupportLimited(ScorerPolicyMethods):
    """Greedy in f where the log supports it, the behaviour policy mu elsewhere."""

    scorer: Scorer
    mu: Policy
    support: Scorer
    threshold: float
    mode: Mode = "spibb"

    def __post_init__(self) -> None:
        same_actions(self.scorer, self.mu)
        same_actions(self.support, self.mu)
        if not np.isfinite(self.threshold):
            raise ConfigError(expected="a finite threshold", found=str(self.threshold))
        if self.mode not in get_args(Mode):
            raise ConfigError(expected="mode 'spibb' or 'mbs'", found=repr(self.mode))

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """The limited policy, [n, A]."""
        scores = masked_scores(self.scorer, contexts, candidates)
        behaviour = self.mu.action_probs(contexts, candidates)
        known = checked_scores(self.support, contexts) >= self.threshold
        supported = np.logical_and(known, np.isfinite(scores))  # [n, A]
        kept = np.where(supported, 0.0, behaviour) if self.mode == "spibb" else np.zeros_like(behaviour)
        rows = np.flatnonzero(supported.any(axis=1))
        probs = behaviour.copy()
        probs[rows] = kept[rows]
        best = greedy_actions(np.where(supported, scores, -np.inf))[rows]
        probs[rows, best] += np.maximum(0.0, 1.0 - kept[rows].sum(axis=1))
        return probs


@saveable("policies/pseudo-counts")
@dataclass(frozen=True, eq=False)
class PseudoCounts:
    """Pseudo-counts of (x, a): the inverse leverage of phi(x) among the logged decisions with action a.

        n(x, a) = phi(x)'phi(x) / phi(x)'(Phi_a'Phi_a + ridge I)^{-1} phi(x)  -  ridge

    With one-hot features this is exactly the number of times a was taken in state x; with a smooth feature
    map it counts neighbours. Only the inverse matrices are stored.
    """

    inverses: Float64Array  # [A, p, p] (Phi_a'Phi_a + ridge I)^{-1}
    features: FeatureMap
    ridge: float

    def __post_init__(self) -> None:
        freeze(self, "inverses", ndim=3)
        p = self.features.width
        if self.inverses.shape[1:] != (p, p) or len(self.inverses) < 1:
            raise ConfigError(
                expected=f"inverses of shape [A, {p}, {p}]", found=f"shape {self.inverses.shape}"
            )
        _check_ridge(self.ridge)

    @classmethod
    def fit(
        cls, features: FeatureMap, contexts: FloatArray, actions: IntArray, n_actions: int, ridge: float = 1.0
    ) -> PseudoCounts:
        """Gram matrices of the logged contexts [n, d], one per action taken [n]."""
        _check_ridge(ridge)
        x, taken = as_matrix(contexts, features.width_in), np.asarray(actions)
        if taken.shape != (len(x),) or taken.dtype.kind not in "iu":
            raise ActionError(
                expected=f"{len(x)} integer actions", found=f"{taken.dtype} of shape {taken.shape}"
            )
        if ((taken < 0) | (taken >= n_actions)).any():
            raise ActionError(
                expected=f"actions in 0..{n_actions - 1}", found=f"{taken.min()}..{taken.max()}"
            )
        phi = features.transform(x)
        grams = np.stack([phi[taken == a].T @ phi[taken == a] for a in range(n_actions)])
        inverses = np.linalg.inv(grams + ridge * np.eye(features.width)).astype(np.float64, copy=False)
        return cls(inverses=inverses, features=features, ridge=ridge)

    @property
    def n_actions(self) -> int:
        """|A|."""
        return len(self.inverses)

    @property
    def width(self) -> int:
        """The width d of a context."""
        return self.features.width_in

    def scores(self, contexts: FloatArray) -> Float64Array:
        """Counts n(x, a), [n, A]; one action at a time, in blocks of rows that stay in the cache."""
        phi = self.features.transform(contexts)
        counts = np.zeros((len(phi), self.n_actions))
        for first in range(0, len(phi), _ROWS):
            block = phi[first : first + _ROWS]
            size = np.vecdot(block, block)
            leverage = np.stack([np.vecdot(block @ inverse, block) for inverse in self.inverses], axis=1)
            np.divide(size[:, None], leverage, out=counts[first : first + _ROWS], where=leverage > 0)
        counts -= self.ridge
        return np.maximum(counts, 0.0, out=counts)


class SizesOfMu:
    """The sizes of a support that is computed from mu."""

    mu: Policy

    @property
    def n_actions(self) -> int:
        """|A|."""
        return self.mu.n_actions

    @property
    def width(self) -> int | None:
        """The width d of a context, where mu says it."""
        width: int | None = getattr(self.mu, "width", None)
        return width


@saveable("policies/relative-density")
@dataclass(frozen=True, eq=False)
class RelativeDensity(SizesOfMu):
    """A support in [0, 1]: mu(a|x) / max_a' mu(a'|x), the filter of batch-constrained Q-learning."""

    mu: Policy

    def scores(self, contexts: FloatArray) -> Float64Array:
        """The relative density without a mask, [n, A]."""
        density = self.mu.action_probs(contexts)
        scores: Float64Array = density / density.max(axis=1, keepdims=True)
        return scores


@saveable("policies/policy-density")
@dataclass(frozen=True, eq=False)
class PolicyDensity(SizesOfMu):
    """A policy as a support: the density of (x, a) is mu(a|x), as in batch-constrained Q-learning."""

    mu: Policy

    def scores(self, contexts: FloatArray) -> Float64Array:
        """mu(a|x) without a mask, [n, A]."""
        return self.mu.action_probs(contexts)


def _check_ridge(ridge: float) -> None:
    if not (np.isfinite(ridge) and ridge > 0):
        raise ConfigError(expected="a positive ridge", found=str(ridge))
