"""Features with nothing to estimate but a location and a scale: standardise, and the identity."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shpi.errors import ConfigError
from shpi.features.base import as_matrix
from shpi.features.parts import freeze, saveable
from shpi.protocols import Float64Array, FloatArray


@dataclass(frozen=True, kw_only=True)
class Standardise:
    """phi_j(x) = (x_j - mean_j) / sd_j. A constant column becomes 0, and stays finite on new data."""

    def fit(self, contexts: FloatArray) -> StandardiseMap:
        """Means and standard deviations of these contexts."""
        x = as_matrix(contexts, not_empty=True)
        mean, spread = x.mean(axis=0), x.std(axis=0)
        constant = spread <= 1e-12 * np.abs(mean)  # constant up to rounding
        return StandardiseMap(mean=mean, scale=np.where(constant, 1.0, spread))


@saveable("features/standardise")
@dataclass(frozen=True, kw_only=True, eq=False)
class StandardiseMap:
    """The fitted form of `Standardise`."""

    mean: Float64Array  # [d]
    scale: Float64Array  # [d]
    width_in: int = field(init=False, repr=False)  # d
    width: int = field(init=False, repr=False)  # the number of features, d

    def __post_init__(self) -> None:
        freeze(self, "mean", "scale", ndim=1)
        if self.mean.shape != self.scale.shape or not (self.scale > 0).all():
            raise ConfigError(
                expected="one positive scale per mean",
                found=f"{len(self.mean)} means and scales {self.scale[:8]}",
            )
        for name in ("width_in", "width"):
            object.__setattr__(self, name, len(self.mean))

    def transform(self, contexts: FloatArray) -> Float64Array:
        """(x - mean) / scale, [n, d]."""
        features: Float64Array = as_matrix(contexts, self.width_in) - self.mean
        features /= self.scale
        return features


@dataclass(frozen=True, kw_only=True)
class Identity:
    """phi(x) = (1, x), or x alone without the intercept."""

    intercept: bool = True

    def fit(self, contexts: FloatArray) -> IdentityMap:
        """Only the width is taken from the contexts."""
        return IdentityMap(width_in=as_matrix(contexts).shape[1], intercept=self.intercept)


@saveable("features/identity")
@dataclass(frozen=True, kw_only=True, eq=False)
class IdentityMap:
    """The fitted form of `Identity`."""

    width_in: int
    intercept: bool = True

    @property
    def width(self) -> int:
        """The number of features: d, plus one for the intercept."""
        return self.width_in + self.intercept

    def transform(self, contexts: FloatArray) -> Float64Array:
        """(1, x), [n, p]."""
        x = as_matrix(contexts, self.width_in)
        return np.concatenate([np.ones((len(x), 1)), x], axis=1) if self.intercept else x.copy()
