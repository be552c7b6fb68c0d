"""Draw actions from probabilities, and restrict probabilities to the actions that are allowed.

Everything here is a pure function of its arguments: the random numbers are handed in, so the same numbers
give the same actions on every machine and whatever the batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from shpi.errors import ActionError
from shpi.features.base import check_contexts
from shpi.protocols import BoolArray, Float64Array, FloatArray, Int64Array

__all__ = ["check_candidates", "check_contexts", "mask_probs", "sample_actions"]


def sample_actions(probs: FloatArray, uniforms: FloatArray) -> Int64Array:
    """One action per row by the inverse of the cumulative distribution.

    With F(a) = sum_{b<=a} p(b) / sum_b p(b), row i gets the smallest a with u_i < F(a). Dividing by the
    last column makes F end at exactly 1, so rounding never leaves a gap; an action of probability 0 has
    F(a) = F(a-1) and is never drawn.

    Args:
        probs: non-negative weights [n, A] with a positive sum in each row.
        uniforms: numbers in [0, 1), one per row [n].

    Returns:
        Actions [n], int64.
    """
    weights, draws = np.asarray(probs, dtype=np.float64), np.asarray(uniforms, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[1] == 0 or draws.shape != weights.shape[:1]:
        raise ActionError(
            expected="probabilities [n, A] and uniforms [n]",
            found=f"shapes {weights.shape} and {draws.shape}",
        )
    if not ((draws >= 0) & (draws < 1)).all():
        raise ActionError(expected="uniforms in [0, 1)", found="a number outside, or NaN")
    cumulative = np.cumsum(weights, axis=1)  # [n, A]
    total = cumulative[:, -1]
    bad = ~(np.isfinite(total) & (total > 0) & (weights >= 0).all(axis=1))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ActionError(
            expected="probabilities that are non-negative, finite and not all 0",
            found=f"{weights[row, :8]}{' …' if weights.shape[1] > 8 else ''}",
            where=f"row {row}",
        )
    cumulative /= total[:, None]
    return np.asarray((cumulative <= draws[:, None]).sum(axis=1), dtype=np.int64)


def check_candidates(candidates: ArrayLike | None, n: int, n_actions: int) -> BoolArray | None:
    """The mask [n, A] of allowed actions, checked: right shape, boolean, no row without an action."""
    if candidates is None:
        return None
    mask = np.asarray(candidates)
    if mask.shape != (n, n_actions):
        raise ActionError(expected=f"candidates of shape {(n, n_actions)}", found=f"shape {mask.shape}")
    if mask.dtype != np.bool_:
        raise ActionError(
            expected="boolean candidates (True = allowed)",
            found=f"dtype {mask.dtype}",
            remedy="pass a mask [n, A], not a list of action numbers",
        )
    empty = ~mask.any(axis=1)
    if empty.any():
        raise ActionError(
            expected="at least one allowed action in every row",
            found="an empty candidate set",
            where=f"row {int(np.flatnonzero(empty)[0])}",
        )
    return mask


def mask_probs(probs: FloatArray, candidates: ArrayLike | None) -> Float64Array:
    """Probabilities restricted to the allowed actions: p(a) 1[a allowed] / sum_b p(b) 1[b allowed].

    Without a mask the probabilities are returned unchanged. A row whose allowed actions all have
    probability 0 is an error.
    """
    weights = np.asarray(probs, dtype=np.float64)
    if weights.ndim != 2:
        raise ActionError(expected="probabilities [n, A]", found=f"shape {weights.shape}")
    mask = check_candidates(candidates, *weights.shape)
    if mask is None:
        return weights
    kept = np.where(mask, weights, 0.0)
    total = kept.sum(axis=1)
    if not (total > 0).all():
        row = int(np.flatnonzero(~(total > 0))[0])
        raise ActionError(
            expected="an allowed action of positive probability in every row",
            found="allowed actions that this policy never takes",
            where=f"row {row}",
            remedy="mix the policy with one that covers every action, such as a UniformPolicy",
        )
    kept /= total[:, None]
    return kept
