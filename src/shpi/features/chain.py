"""One feature map after another, such as standardised contexts into random Fourier features."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shpi.errors import ConfigError
from shpi.features.base import FeatureMap, Recipe, as_matrix, check_contexts, fit_features
from shpi.features.parts import Parts, saveable, take_apart
from shpi.features.scale import IdentityMap
from shpi.protocols import Float64Array, FloatArray


@dataclass(frozen=True)
class Chain:
    """phi = phi_last ∘ … ∘ phi_first: ``Chain((Standardise(), RandomFourier()))``."""

    steps: tuple[Recipe | FeatureMap, ...]

    def __post_init__(self) -> None:
        if not self.steps:
            raise ConfigError(expected="at least one step", found="none", where="Chain")

    def fit(self, contexts: FloatArray) -> ChainMap:
        """Fit each step on the output of the steps before it."""
        x = as_matrix(contexts)
        fitted = [fit_features(self.steps[0], x)]
        for step in self.steps[1:]:
            x = fitted[-1].transform(x)
            fitted.append(fit_features(step, x))
        return ChainMap(steps=tuple(fitted))


@saveable("features/chain")
@dataclass(frozen=True, kw_only=True, eq=False)
class ChainMap:
    """The fitted form of `Chain`."""

    steps: tuple[FeatureMap, ...]
    width_in: int = field(init=False, repr=False)  # d, of the first step
    width: int = field(init=False, repr=False)  # p, of the last step

    def __post_init__(self) -> None:
        if not self.steps:
            raise ConfigError(expected="at least one step", found="none", where="Chain")
        for first, second in zip(self.steps[:-1], self.steps[1:], strict=True):
            if first.width != second.width_in:
                raise ConfigError(
                    expected=f"a step for {first.width} dimensions", found=f"one for {second.width_in}"
                )
        object.__setattr__(self, "width_in", self.steps[0].width_in)
        object.__setattr__(self, "width", self.steps[-1].width)

    def transform(self, contexts: FloatArray) -> Float64Array:
        """Every step in turn, [n, p]."""
        x = self.steps[0].transform(check_contexts(contexts, self.width_in))
        for step in self.steps[1:]:
            x = step.transform(x)
        return x


def with_intercept(features: FeatureMap) -> FeatureMap:
    """The same map, with a constant 1 in front if it has none."""
    last = features.steps[-1] if isinstance(features, ChainMap) else features
    if getattr(last, "intercept", False):
        return features
    return ChainMap(steps=(features, IdentityMap(width_in=features.width)))


def same_map(left: FeatureMap, right: FeatureMap) -> bool:
    """Whether two maps certainly give the same features: the same steps with the same values."""
    if left is right:
        return True
    first, second = _steps(left), _steps(right)
    if len(first) != len(second):
        return False
    try:
        pairs = [(take_apart(a), take_apart(b)) for a, b in zip(first, second, strict=True)]
    except ConfigError:  # a user-defined map
        return False
    return all(_same_parts(a, b) for a, b in pairs)


def _steps(features: FeatureMap) -> list[FeatureMap]:
    """The steps that change anything, with nested chains flattened."""
    if isinstance(features, ChainMap):
        return [inner for step in features.steps for inner in _steps(step)]
    return [] if isinstance(features, IdentityMap) and not features.intercept else [features]


def _same_parts(left: Parts, right: Parts) -> bool:
    return (
        left.kind == right.kind
        and left.settings == right.settings
        and left.arrays.keys() == right.arrays.keys()
        and all(np.array_equal(left.arrays[name], right.arrays[name]) for name in left.arrays)
        and left.children.keys() == right.children.keys()
        and all(_same_parts(left.children[name], right.children[name]) for name in left.children)
    )
