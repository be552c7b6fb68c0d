"""Policies without a score: uniform, one fixed distribution, a table by state, and mixtures of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from shpi.errors import ConfigError, DataError
from shpi.features.onehot import state_index
from shpi.features.parts import frozen_array, saveable
from shpi.policies.base import PolicyMethods
from shpi.policies.sampling import check_candidates, check_contexts, mask_probs
from shpi.protocols import BoolArray, Float64Array, FloatArray, Policy

_SUM_TOLERANCE = 1e-9  # how far a sum of probabilities may be from 1


@saveable("policies/uniform")
@dataclass(frozen=True, eq=False, repr=False)
class UniformPolicy(PolicyMethods):
    """pi(a|x) = 1 / |C(x)| for each allowed action. Contexts of any width are accepted."""

    n_actions: int

    def __post_init__(self) -> None:
        if self.n_actions < 1:
            raise ConfigError(expected="at least one action", found=str(self.n_actions))

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """The same probability for every allowed action, [n, A]."""
        n = len(check_contexts(contexts))
        mask = check_candidates(candidates, n, self.n_actions)
        if mask is None:
            return np.full((n, self.n_actions), 1.0 / self.n_actions)
        probs: Float64Array = mask / mask.sum(axis=1, keepdims=True)
        return probs


@saveable("policies/constant")
@dataclass(frozen=True, eq=False, repr=False)
class ConstantPolicy(PolicyMethods):
    """One distribution for every context: pi(a|x) = probs[a]; under a mask, renormalised."""

    probs: Float64Array  # [A]

    def __post_init__(self) -> None:
        object.__setattr__(self, "probs", _distributions(self.probs, ndim=1))

    @property
    def n_actions(self) -> int:
        """|A|."""
        return len(self.probs)

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """The distribution, once per context [n, A]."""
        return mask_probs(np.tile(self.probs, (len(check_contexts(contexts)), 1)), candidates)


@saveable("policies/tabular")
@dataclass(frozen=True, eq=False, repr=False)
class TabularPolicy(PolicyMethods):
    """A distribution per state: pi(a|x) = table[s, a], where s is the number in a column of the context."""

    table: Float64Array  # [S, A]
    column: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", _distributions(self.table, ndim=2))
        if self.column < 0:
            raise ConfigError(expected="a context column of at least 0", found=str(self.column))

    @property
    def n_actions(self) -> int:
        """|A|."""
        return int(self.table.shape[1])

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """The row of each state, [n, A]."""
        x = check_contexts(contexts)
        if x.shape[1] <= self.column:
            raise DataError(
                expected=f"contexts with a state number in column {self.column}", found=f"shape {x.shape}"
            )
        return mask_probs(self.table[state_index(x, self.column, len(self.table))], candidates)


@saveable("policies/mixture")
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Mixture(PolicyMethods):
    """pi(a|x) = sum_i w_i pi_i(a|x): before each decision a policy is drawn with probability w_i.

    Under a mask each member acts on the allowed actions, and then they are mixed.
    """

    policies: tuple[Policy, ...]
    weights: Float64Array  # [m]

    def __init__(self, policies: Sequence[Policy], weights: ArrayLike) -> None:
        object.__setattr__(self, "policies", tuple(policies))
        object.__setattr__(self, "weights", _distributions(weights, ndim=1))
        counts = [policy.n_actions for policy in self.policies]
        if len(set(counts)) != 1 or len(self.policies) != len(self.weights):
            raise ConfigError(
                expected="one weight per policy, and policies over the same actions",
                found=f"{len(self.weights)} weights, and policies over {counts} actions",
                where="Mixture",
            )
        known = next((items for items in (getattr(p, "items", None) for p in self.policies) if items), None)
        if known is not None:
            object.__setattr__(self, "items", known)

    @property
    def n_actions(self) -> int:
        """|A|."""
        return self.policies[0].n_actions

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """The weighted sum, [n, A]."""
        total = np.zeros((len(check_contexts(contexts)), self.n_actions))
        for weight, policy in zip(self.weights, self.policies, strict=True):
            if weight > 0:
                total += weight * policy.action_probs(contexts, candidates)
        return total


def _distributions(values: ArrayLike, *, ndim: int) -> Float64Array:
    """A read-only copy whose rows are distributions; sums are made exactly 1 up to rounding."""
    probs: Float64Array = frozen_array(values, "probabilities", ndim=ndim)
    sums = probs.sum(axis=-1, keepdims=True)
    if probs.size == 0 or (probs < 0).any() or (np.abs(sums - 1) > _SUM_TOLERANCE).any():
        raise ConfigError(
            expected="non-negative probabilities that sum to 1",
            found=f"a sum of {float(sums.flat[np.abs(sums - 1).argmax()])}" if probs.size else "none",
        )
    return probs
