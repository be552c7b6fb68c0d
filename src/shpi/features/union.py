"""Several feature maps side by side, such as linear features, which extrapolate, and Fourier ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shpi.errors import ConfigError
from shpi.features.base import FeatureMap, Recipe, as_matrix, fit_features
from shpi.features.parts import saveable
from shpi.protocols import Float64Array, FloatArray


@dataclass(frozen=True)
class Union:
    """phi(x) = (phi_1(x), phi_2(x), …): ``Union((Identity(intercept=False), RandomFourier()))``."""

    parts: tuple[Recipe | FeatureMap, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ConfigError(expected="at least one part", found="none", where="Union")

    def fit(self, contexts: FloatArray) -> UnionMap:
        """Fit every part on the same contexts."""
        x = as_matrix(contexts)
        return UnionMap(parts=tuple(fit_features(recipe, x) for recipe in self.parts))


@saveable("features/union")
@dataclass(frozen=True, kw_only=True, eq=False)
class UnionMap:
    """The fitted form of `Union`."""

    parts: tuple[FeatureMap, ...]
    width_in: int = field(init=False, repr=False)  # d, the same for all parts
    width: int = field(init=False, repr=False)  # p, the sum over the parts

    def __post_init__(self) -> None:
        widths = {feature_map.width_in for feature_map in self.parts}
        if len(widths) != 1:
            raise ConfigError(expected="parts for contexts of one width", found=str(sorted(widths)))
        object.__setattr__(self, "width_in", widths.pop())
        object.__setattr__(self, "width", sum(feature_map.width for feature_map in self.parts))

    def transform(self, contexts: FloatArray) -> Float64Array:
        """All parts, [n, p]."""
        x = as_matrix(contexts, self.width_in)
        return np.hstack([feature_map.transform(x) for feature_map in self.parts])
