"""Perceptrons as plain lists of tensors, and their conversion to numpy.

The optimiser, the moving average and a rescaled last layer work on such lists. Weights are drawn by numpy, so
that a seed gives the same weights in every version of torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shpi.protocols import Float32Array

Layers = list[Any]  # of tensors: W_0 [in, out], b_0 [out], W_1, b_1, …


def make_layers(torch: Any, sizes: Sequence[int], rng: np.random.Generator, *, last: float = 1.0) -> Layers:
    """Layers of a multilayer perceptron: weights uniform in ±1/sqrt(in), times ``last`` in the last layer."""
    layers: Layers = []
    for number, (size_in, size_out) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        bound = (last if number == len(sizes) - 2 else 1.0) / np.sqrt(size_in)
        weights = rng.uniform(-bound, bound, size=(size_in, size_out)).astype(np.float32)
        layers += [torch.from_numpy(weights), torch.zeros(size_out)]
    return [layer.requires_grad_() for layer in layers]


def forward(torch: Any, layers: Layers, x: Any) -> Any:
    """The perceptron: relu between the layers, none at the end; inputs [n, in] to outputs [n, out]."""
    for place in range(0, len(layers) - 2, 2):
        x = torch.relu(torch.addmm(layers[place + 1], x, layers[place]))
    return torch.addmm(layers[-1], x, layers[-2])


def predict(torch: Any, layers: Layers, x: Float32Array) -> Float32Array:
    """The perceptron on numpy arrays, without gradients."""
    with torch.no_grad():
        outputs: Float32Array = forward(torch, layers, torch.from_numpy(x)).numpy()
    return outputs


def export(layers: Layers) -> tuple[list[Float32Array], list[Float32Array]]:
    """Copies of the weights and of the biases, in numpy."""
    arrays = [layer.detach().numpy().copy() for layer in layers]
    return arrays[0::2], arrays[1::2]
