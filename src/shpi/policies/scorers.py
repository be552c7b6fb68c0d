"""Scorers: functions f(x, a) that a policy head turns into probabilities.

A regression oracle, a Q-network or a user's own function are all scorers: contexts [n, d] to scores [n, A].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shpi.errors import ConfigError, DataError
from shpi.features.base import FeatureMap, as_matrix
from shpi.features.parts import freeze, frozen_array, saveable
from shpi.protocols import Float64Array, FloatArray


@runtime_checkable
class Scorer(Protocol):
    """f(x, a) for all actions at once."""

    @property
    def n_actions(self) -> int:
        """|A|, the number of actions."""
        ...

    @property
    def width(self) -> int | None:
        """The context width d that is expected, or None when any will do."""
        ...

    def scores(self, contexts: FloatArray) -> Float64Array:
        """f(x, .): contexts [n, d] to scores [n, A]. Row i depends on context i alone."""
        ...


def checked_scores(scorer: Scorer, contexts: FloatArray) -> Float64Array:
    """The scores [n, A], with a clear error in place of a wrong shape, a NaN or an infinity."""
    x = as_matrix(contexts, scorer.width)
    scores = np.asarray(scorer.scores(x), dtype=np.float64)
    if scores.shape != (len(x), scorer.n_actions):
        raise DataError(
            expected=f"scores of shape {(len(x), scorer.n_actions)}",
            found=f"shape {scores.shape}",
            where=type(scorer).__name__,
        )
    bad = ~np.isfinite(scores)
    if bad.any():
        row, action = (int(index[0]) for index in np.nonzero(bad))
        raise DataError(
            expected="finite scores",
            found=str(scores[row, action]),
            where=f"{type(scorer).__name__}, row {row}, action {action}",
        )
    return scores


@saveable("policies/linear-scorer")
@dataclass(frozen=True, eq=False)
class LinearScorer:
    """f(x, a) = weights[a] · phi(x)."""

    weights: Float64Array  # [A, p]
    features: FeatureMap

    def __post_init__(self) -> None:
        freeze(self, "weights", ndim=2)
        if self.weights.shape[0] < 1 or self.weights.shape[1] != self.features.width:
            raise ConfigError(
                expected=f"weights of shape [A, {self.features.width}]", found=f"shape {self.weights.shape}"
            )

    @property
    def n_actions(self) -> int:
        """|A|."""
        return int(self.weights.shape[0])

    @property
    def width(self) -> int:
        """The width d of a context."""
        return self.features.width_in

    def scores(self, contexts: FloatArray) -> Float64Array:
        """phi(x) weights', [n, A]."""
        scores: Float64Array = self.features.transform(contexts) @ self.weights.T
        return scores


@saveable("policies/mlp-scorer")
@dataclass(frozen=True, eq=False, init=False)
class MlpScorer:
    """A multilayer perceptron with relu between its layers and one output per action; numpy only.

        h_0 = phi(x),   h_{l+1} = relu(h_l W_l + b_l),   f(x, .) = h_L W_L + b_L

    The matrices may be stored in float32; the arithmetic is in float64, so that a row alone and the same row
    in a batch agree to rounding.
    """

    weights: tuple[NDArray[Any], ...]  # each [in, out]
    biases: tuple[NDArray[Any], ...]  # each [out]
    features: FeatureMap
    _layers: tuple[tuple[Float64Array, Float64Array], ...] = field(init=False, repr=False)

    def __init__(
        self, weights: Sequence[ArrayLike], biases: Sequence[ArrayLike], features: FeatureMap
    ) -> None:
        matrices = tuple(frozen_array(w, "weights", ndim=2, dtype=None) for w in weights)
        offsets = tuple(frozen_array(b, "biases", ndim=1, dtype=None) for b in biases)
        object.__setattr__(self, "weights", matrices)
        object.__setattr__(self, "biases", offsets)
        object.__setattr__(self, "features", features)
        sizes = [features.width, *(matrix.shape[1] for matrix in matrices)]
        shapes = [(m.shape, b.shape) for m, b in zip(matrices, offsets, strict=False)]
        wanted = [((i, o), (o,)) for i, o in zip(sizes[:-1], sizes[1:], strict=True)]
        if not matrices or len(offsets) != len(matrices) or shapes != wanted:
            raise ConfigError(
                expected=f"one bias per layer, and layers that fit together from {features.width} features",
                found=f"weights {[m.shape for m in matrices]} and biases {[b.shape for b in offsets]}",
                where="MlpScorer",
            )
        layers = tuple(
            (m.astype(np.float64), b.astype(np.float64)) for m, b in zip(matrices, offsets, strict=True)
        )
        object.__setattr__(self, "_layers", layers)

    @property
    def n_actions(self) -> int:
        """|A|."""
        return int(self.biases[-1].shape[0])

    @property
    def width(self) -> int:
        """The width d of a context."""
        return self.features.width_in

    def scores(self, contexts: FloatArray) -> Float64Array:
        """The forward pass, [n, A]."""
        hidden = self.features.transform(contexts)
        for matrix, bias in self._layers[:-1]:
            hidden = hidden @ matrix
            hidden += bias
            np.maximum(hidden, 0.0, out=hidden)
        matrix, bias = self._layers[-1]
        scores: Float64Array = hidden @ matrix + bias
        return scores


@dataclass(frozen=True, eq=False)
class FunctionScorer:
    """A user's own function from contexts [n, d] to scores [n, A]. It cannot be saved."""

    function: Callable[[FloatArray], ArrayLike]
    n_actions: int
    width: int | None = None

    def scores(self, contexts: FloatArray) -> Float64Array:
        """The function's scores, [n, A]; it gets the contexts read-only."""
        view = np.asarray(contexts).view()
        view.setflags(write=False)
        return np.asarray(self.function(view), dtype=np.float64)
