r"""MAGIC (Thomas and Brunskill 2016): blend estimators that switch from weights to a model after j steps.

    g_j = (1/U) sum_i V_H(x_i0) + (trajectories per user) sum_{t<j} gamma^t M_t      j = 0: model, j = H: WDR
    J = sum_j x_j g_j,      x = argmin over the simplex of  x'(Omega + b b')x

Omega is the covariance of the g_j over users, and b_j how far g_j lies outside the interval of WDR. Few steps
have little variance but the bias of the model, many steps the reverse. Non-negative least squares finds x
exactly. A bias smaller than the interval of WDR cannot be detected, so the interval of MAGIC, which treats x
as given, can be too narrow if the model is wrong (docs/ope-coverage.md). It includes the noise of the fit of
Q. MAGIC is not paired as DR is: with j < H, the same blend for mu would not estimate J(mu).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import optimize

from shpi.errors import ConfigError, DataError
from shpi.features import FeatureMap, Recipe
from shpi.ope.estimators.base import finish
from shpi.ope.estimators.robust import Residuals
from shpi.ope.problem import Problem
from shpi.ope.results import Estimate
from shpi.protocols import Float64Array


@dataclass(frozen=True, kw_only=True)
class MAGIC:
    """Model and guided importance sampling, combined.

    Args:
        switches: largest number of values of j, spread over 0 .. H, both ends included.
        features: features of a context, for Q.
        ridge: ridge penalty, in decisions; None: the defaults.
        name: name of the estimator.
    """

    switches: int = 8
    features: Recipe | FeatureMap | None = None
    ridge: float | None = None
    name: str = "MAGIC"

    def __post_init__(self) -> None:
        if self.switches < 2:
            raise ConfigError(expected="at least 2 switches", found=str(self.switches), where="MAGIC")

    def estimate(self, problem: Problem) -> Estimate:
        """See the top of this file."""
        residuals = Residuals.of(problem, self.features, self.ridge, paired=False)
        places = switch_places(problem.horizon, self.switches)
        ask: list[Callable[[], Any]] = [partial(residuals.sums, normalise=True, steps=tuple(places))]
        if not problem.values_only:  # in the same pass, since the gradients do not depend on the blend
            ask.append(residuals.gradients)
        by_length = problem.all_of(ask)[0]
        values, weights = np.array([sums.value for sums in by_length]), by_length[-1].weights
        last = problem.interval(by_length[-1].value, by_length[-1].influence)
        influences = np.empty((len(places), problem.users))  # [J, U]
        for row in influences:  # moved one by one, so that only one exists twice
            row[:] = by_length.pop(0).influence
        blend = mixture(values, np.cov(influences) / problem.users, (last.lower, last.upper))
        influence = blend @ influences
        del influences  # free J values per user before the next pass
        chosen = ", ".join(f"{x:.0%} at {j}" for x, j in zip(blend, places, strict=True) if x > 0.005)
        reach = np.array([blend[np.array(places) > t].sum() for t in range(problem.horizon)])
        moved = residuals.noise_of_fit(reach)
        return finish(
            self.name,
            problem,
            float(blend @ values),
            influence + moved - moved.mean(),
            weights,
            (*residuals.notes, f"weights until step: {chosen}"),
        )


def switch_places(horizon: int, count: int) -> list[int]:
    """The values of j: 0, H, and geometrically spaced steps between, denser at small j."""
    if horizon + 1 <= count:
        return list(range(horizon + 1))
    between = np.geomspace(1, horizon, count - 1)
    return sorted({0, horizon, *(int(j) for j in np.round(between))})


def mixture(values: Float64Array, covariance: Float64Array, interval: tuple[float, float]) -> Float64Array:
    """The weights x of the blend [J]."""
    outside = np.maximum(values - interval[1], 0.0) - np.maximum(interval[0] - values, 0.0)
    square = covariance + np.outer(outside, outside)
    scale = float(np.trace(square)) / len(values)
    if scale == 0:  # all values agree, without any variance
        return np.full(len(values), 1.0 / len(values))
    # The z >= 0 [J] that minimises z'S z + (1'z - 1)^2; x is z scaled to sum to 1. If the minimum is not
    # unique, nnls of scipy 1.13 cycles or meets a singular matrix: a small ridge makes it unique.
    wanted = np.append(np.zeros(len(square)), 1.0)
    for ridge in (0.0, 1e-9, 1e-6):
        eigenvalues, vectors = np.linalg.eigh(square / scale + ridge * np.eye(len(square)))
        root = np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T  # R with R'R = S
        with suppress(RuntimeError, np.linalg.LinAlgError):  # "maximum number of iterations", "singular"
            z: Float64Array = optimize.nnls(np.vstack([root, np.ones(len(root))]), wanted)[0]
            blend: Float64Array = z / z.sum()
            return blend
    raise DataError(
        expected="a blend of least error", found="none", remedy="leave MAGIC out; WDR needs no blend"
    )
