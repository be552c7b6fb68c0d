"""One feature map after another, such as standardised contexts into random Fourier features."""

from __future__ import annotations

from dataclasses import dataclass

from shpi.errors import ConfigError
from shpi.features.base import FeatureMap, Recipe, as_matrix, fit_features
from shpi.features.parts import saveable
from shpi.protocols import Float64Array, FloatArray


@dataclass(frozen=True)
class Chain:
    """phi = phi_last ∘ … ∘ phi_first: ``Chain((Standardise(), RandomFourier()))``."""

    steps: tuple[Recipe | FeatureMap, ...]

    def __post_init__(self) -> None:
        if not self.steps:
            raise ConfigError(expected="at least one step", found="none", where="Chain")

    def fit(self, contexts: FloatArray) -> ChainMap:
        """Fit each step on what the steps before it give."""
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

    def __post_init__(self) -> None:
        if not self.steps:
            raise ConfigError(expected="at least one step", found="none", where="Chain")
        for first, second in zip(self.steps[:-1], self.steps[1:], strict=True):
            if first.width != second.width_in:
                raise ConfigError(
                    expected=f"a step for {first.width} dimensions", found=f"one for {second.width_in}"
                )

    @property
    def width_in(self) -> int:
        """d, of the first step."""
        return self.steps[0].width_in

    @property
    def width(self) -> int:
        """p, of the last step."""
        return self.steps[-1].width

    def transform(self, contexts: FloatArray) -> Float64Array:
        """Every step in turn, [n, p]."""
        x = as_matrix(contexts, self.width_in)
        for step in self.steps:
            x = step.transform(x)
        return x
