"""Additive features, a sum of functions of one dimension each: powers, and hinges (linear splines)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shpi.errors import ConfigError
from shpi.features.base import as_matrix
from shpi.features.parts import freeze, saveable
from shpi.protocols import Float64Array, FloatArray, Int64Array


@dataclass(frozen=True, kw_only=True)
class Powers:
    """phi(x) = (1, x, x^2, …, x^degree), with powers per dimension. Standardise first: powers grow fast.

    Degree 0 is the intercept alone. With a ``limit`` L the powers from the second on are those of x clipped
    to [-L, L], so that a single context in a long tail, such as a count far above all others, cannot
    dominate the coefficients.
    """

    degree: int = 3
    intercept: bool = True
    limit: float | None = None

    def __post_init__(self) -> None:
        if self.degree < 0 or (self.degree == 0 and not self.intercept):
            raise ConfigError(
                expected="degree of at least 1, or of 0 with an intercept",
                found=str(self.degree),
                where="Powers",
            )
        if self.limit is not None and not self.limit > 0:
            raise ConfigError(expected="a positive limit, or None", found=str(self.limit), where="Powers")

    def fit(self, contexts: FloatArray) -> PowersMap:
        """Only the width is taken from the contexts."""
        width = as_matrix(contexts).shape[1]
        return PowersMap(width_in=width, degree=self.degree, intercept=self.intercept, limit=self.limit)


@saveable("features/powers")
@dataclass(frozen=True, kw_only=True, eq=False)
class PowersMap:
    """The fitted form of `Powers`."""

    width_in: int
    degree: int
    intercept: bool = True
    limit: float | None = None

    @property
    def width(self) -> int:
        """The number of features: degree × d, plus one for the intercept."""
        return self.degree * self.width_in + self.intercept

    def transform(self, contexts: FloatArray) -> Float64Array:
        """(1, x, x^2, …), [n, p]."""
        x, d, first = as_matrix(contexts, self.width_in), self.width_in, int(self.intercept)
        features = np.empty((len(x), self.width))
        features[:, :first] = 1.0
        features[:, first : first + d] = x[:, : self.width - first]
        inner = x if self.limit is None or self.degree == 1 else np.clip(x, -self.limit, self.limit)
        power = inner
        for start in range(
            first + d, self.width, max(d, 1)
        ):  # each power from the one before: much faster than x**3
            power = np.multiply(power, inner, out=features[:, start : start + d])
        return features


@dataclass(frozen=True, kw_only=True)
class Hinges:
    """phi(x) = (1, x, max(0, x_j - q_jk)), with ``knots`` quantiles q_j1 .. q_jK of each dimension j.

    Quantiles that coincide, as in a column with few distinct values, are used once.
    """

    knots: int = 5
    intercept: bool = True

    def __post_init__(self) -> None:
        if self.knots < 1:
            raise ConfigError(expected="knots of at least 1", found=str(self.knots))

    def fit(self, contexts: FloatArray) -> HingesMap:
        """Place the knots at the quantiles 1/(K+1), …, K/(K+1)."""
        x = as_matrix(contexts, not_empty=True)
        levels = np.arange(1, self.knots + 1) / (self.knots + 1)
        quantiles = np.quantile(x, levels, axis=0)  # [K, d]
        pairs = [(j, q) for j in range(x.shape[1]) for q in np.unique(quantiles[:, j])]
        return HingesMap(
            width_in=x.shape[1],
            columns=np.array([j for j, _ in pairs], dtype=np.int64),
            places=np.array([q for _, q in pairs], dtype=np.float64),
            intercept=self.intercept,
        )


@saveable("features/hinges")
@dataclass(frozen=True, kw_only=True, eq=False)
class HingesMap:
    """The fitted form of `Hinges`: hinge k bends dimension ``columns[k]`` at ``places[k]``."""

    width_in: int
    columns: Int64Array  # [H]
    places: Float64Array  # [H]
    intercept: bool = True
    width: int = field(init=False, repr=False)  # p = d + H, plus one for the intercept

    def __post_init__(self) -> None:
        freeze(self, "columns", ndim=1, dtype=np.int64)
        freeze(self, "places", ndim=1)
        inside = ((self.columns >= 0) & (self.columns < self.width_in)).all()
        if self.columns.shape != self.places.shape or not inside:
            raise ConfigError(
                expected=f"one column in 0..{self.width_in - 1} per hinge",
                found=f"{len(self.columns)} columns for {len(self.places)} hinges",
            )
        object.__setattr__(self, "width", self.width_in + len(self.places) + self.intercept)

    def transform(self, contexts: FloatArray) -> Float64Array:
        """(1, x, hinges), [n, p]."""
        x = as_matrix(contexts, self.width_in)
        hinges = np.maximum(0.0, x[:, self.columns] - self.places)
        return np.concatenate([np.ones((len(x), int(self.intercept))), x, hinges], axis=1)
