"""The hidden layers of a trained network as a feature map; numpy only: a saved value needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shpi.errors import ConfigError
from shpi.features import FeatureMap
from shpi.features.base import as_matrix
from shpi.features.parts import frozen_array, saveable
from shpi.protocols import Float64Array, FloatArray


@saveable("values/network")
@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkMap:
    """h_0 = inputs(x), h_{l+1} = relu(h_l W_l + b_l); the features are the last h."""

    inputs: FeatureMap
    weights: tuple[NDArray[Any], ...]  # each [in, out]
    biases: tuple[NDArray[Any], ...]  # each [out]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(frozen_array(w, "weights", ndim=2) for w in self.weights))
        object.__setattr__(self, "biases", tuple(frozen_array(b, "biases", ndim=1) for b in self.biases))
        sizes = [self.inputs.width, *(w.shape[1] for w in self.weights)]
        wanted = list(zip(sizes[:-1], sizes[1:], strict=True))
        fits = [w.shape for w in self.weights] == wanted
        if not self.weights or not fits or [len(b) for b in self.biases] != sizes[1:]:
            raise ConfigError(
                expected=f"layers that fit together from {self.inputs.width} inputs",
                found=f"weights {[w.shape for w in self.weights]}, biases {[len(b) for b in self.biases]}",
            )

    @property
    def width_in(self) -> int:
        """The width d of a context."""
        return self.inputs.width_in

    @property
    def width(self) -> int:
        """The size of the last hidden layer."""
        return int(self.weights[-1].shape[1])

    def transform(self, contexts: FloatArray) -> Float64Array:
        """Activations [n, p]."""
        hidden = self.inputs.transform(as_matrix(contexts, self.width_in))
        for matrix, bias in zip(self.weights, self.biases, strict=True):
            hidden = np.maximum(hidden @ matrix + bias, 0.0)
        return hidden
