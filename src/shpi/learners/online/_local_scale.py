r"""The scale of advantages around a context, sigma(x): weights for a regression with heteroscedastic noise.

    log sigma(x)^2 = phi(x)'theta,      regressed on log A^2                        (Harvey 1976)

Users far from the optimum have advantages a thousand times larger than those near it, and plain least
squares would fit only the former. Weights 1 / sigma(x)^2 depend on the context only, so for an unrestricted
f they do not change the estimand, only the variance.
"""

from __future__ import annotations

import numpy as np

from shpi.features import Chain, Identity, RandomFourier, Recipe, Standardise
from shpi.protocols import BoolArray, Float64Array, FloatArray

NARROW = 8  # sigma is nonlinear up to this many dimensions
N_FEATURES = 60  # random Fourier features of sigma
RIDGE = 10.0  # in decisions
FLOOR = 1e-6  # of the mean square: an advantage of exactly 0 has no logarithm
RANGE = (0.01, 0.99)  # quantiles; predictions are clipped to them


def local_scale(
    contexts: FloatArray, advantages: Float64Array, valid: BoolArray, *, seed: int
) -> Float64Array:
    """sigma(x) [n], up to a constant factor; all ones where the advantages are all 0."""
    size = float(np.abs(advantages[valid]).max(initial=0.0))
    if size == 0:
        return np.ones(len(advantages))
    square = np.square(advantages[valid] / size)
    logs = np.log(square + FLOOR * square.mean())
    recipe: Recipe = Identity(intercept=False)
    if contexts.shape[1] <= NARROW:
        recipe = RandomFourier(n_features=N_FEATURES, bandwidth_factor=1.0, intercept=False, seed=seed)
    phi = Chain((Standardise(), recipe)).fit(contexts).transform(contexts)
    phi -= phi[valid].mean(axis=0)
    used = phi[valid]
    theta = np.linalg.solve(used.T @ used + RIDGE * np.eye(phi.shape[1]), used.T @ (logs - logs.mean()))
    predicted = phi @ theta
    scale: Float64Array = np.exp(0.5 * np.clip(predicted, *np.quantile(predicted, RANGE)))
    return scale
