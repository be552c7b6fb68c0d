"""Multinomial logistic regression with candidate masks, in float32, for millions of (row, action) pairs.

    mu(a | x) = exp(w_a . x) / sum over candidates b of exp(w_b . x)

The objective is the mean log-loss plus (prior / 2n) |w|^2: a normal prior on the coefficients of
standardised contexts. The intercepts are almost free, so that the marginal frequencies are matched.
If the probability p of each taken action is known, the log-loss is the cross-entropy with p,

    - p log mu(a|x) - (1 - p) log(1 - mu(a|x)),

which is minimal at mu(a|x) = p in every row: the random draw of the action adds no noise.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shpi.protocols import BoolArray, Float32Array, Float64Array, IntArray

INTERCEPT_PRIOR = 1e-3  # enough to keep the intercept of an unseen action finite
NEVER = np.float32(-1e30)  # the logit of an action that is not a candidate
LEAST = np.float32(1e-6)  # lower bound on 1 - mu: float32 has no more digits near 1
LEAST_LOG = np.float32(-30.0)  # lower bound on log mu
BLOCK_ENTRIES = 100_000  # rows × actions per block, so that it stays in the cache
BLOCK_FEATURES = 200_000  # the same for rows × features

Real = TypeVar("Real", bound=np.floating[Any])


def row_max(table: NDArray[Real]) -> NDArray[Real]:
    """The largest entry of each row, [n, 1]; for short rows argmax is faster than numpy's maximum."""
    return np.take_along_axis(table, table.argmax(axis=1)[:, None], axis=1)


def row_sums(table: Float32Array) -> Float32Array:
    """The sum of each row [n]; for short rows a matrix product is faster than numpy's sum.

    OpenBLAS can raise the flag "invalid" for finite numbers (numpy issue 24067), so it is ignored. A row that
    holds NaN still sums to NaN.
    """
    with np.errstate(invalid="ignore"):
        return table @ np.ones(table.shape[1], dtype=table.dtype)


def log_softmax(logits: Float32Array, candidates: BoolArray | None) -> Float32Array:
    """The logarithm of mu [n, A], very negative outside the candidates. Overwrites ``logits``."""
    if candidates is not None:
        np.copyto(logits, NEVER, where=~candidates)
    logits -= row_max(logits)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits


def fit_softmax(
    contexts: Float32Array,
    actions: IntArray,
    candidates: BoolArray | None,
    *,
    n_actions: int,
    prior: float,
    probs: Float32Array | None = None,
    start: Float64Array | None = None,
    max_iterations: int = 200,
) -> Float64Array:
    """Weights [1 + d, A], the intercepts first. ``contexts`` [n, 1 + d] are standardised, 1 in front.

    ``probs`` [n] are the probabilities of the taken actions, if known.
    """
    from scipy.optimize import minimize  # slow to import, and only fits need it

    n, width = contexts.shape
    penalty = np.full((width, 1), prior / n)
    penalty[0] = INTERCEPT_PRIOR / n
    size = max(min(BLOCK_ENTRIES // n_actions, BLOCK_FEATURES // width), 1)
    blocks = [slice(i, min(i + size, n)) for i in range(0, n, size)]

    def objective(flat: Float64Array) -> tuple[float, Float64Array]:
        weights = flat.reshape(width, n_actions)
        small, taken = weights.astype(np.float32), np.empty(n, dtype=np.float32)
        gradient = np.zeros((width, n_actions))
        for rows in blocks:
            mask = None if candidates is None else candidates[rows]
            known = None if probs is None else probs[rows]
            taken[rows], residual = _residual(contexts[rows] @ small, actions[rows], mask, known)
            gradient += contexts[rows].T @ residual
        loss = taken_loss(taken, probs) + 0.5 * float((penalty * weights**2).sum())
        return loss, (gradient / n + penalty * weights).ravel()

    first = np.zeros((width, n_actions)) if start is None else start
    result = minimize(
        objective,
        first.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iterations, "gtol": 1e-5, "ftol": 1e-7},  # float32 has no more digits
    )
    weights: Float64Array = result.x.reshape(width, n_actions)
    return weights


def _residual(
    logits: Float32Array, actions: IntArray, candidates: BoolArray | None, probs: Float32Array | None
) -> tuple[Float32Array, Float32Array]:
    """The logarithm of mu(a|x) [b], and the gradient of each row's loss in the logits [b, A]."""
    rows = np.arange(len(actions))
    if candidates is not None:
        np.copyto(logits, NEVER, where=~candidates)
    logits -= row_max(logits)
    log_mu = logits[rows, actions]
    residual = np.exp(logits, out=logits)
    total = row_sums(residual)
    log_mu -= np.log(total)
    scale = 1 / total
    if probs is not None:
        left = np.maximum(-np.expm1(log_mu), LEAST)  # 1 - mu
        steep = 1 - (1 - probs) / left
        scale *= steep
    residual *= scale[:, None]  # mu, then mu - one hot
    residual[rows, actions] -= 1 if probs is None else steep
    return log_mu, residual


def taken_loss(log_mu: Float32Array, probs: Float32Array | None) -> float:
    """The mean log-loss of log mu(a|x) [n] for the taken actions; see the module docstring for ``probs``."""
    if probs is None:
        return -float(log_mu.mean(dtype=np.float64))
    left = np.maximum(1 - np.exp(log_mu), LEAST)
    losses = probs * np.maximum(log_mu, LEAST_LOG) + (1 - probs) * np.log(left)
    return -float(losses.mean(dtype=np.float64))
