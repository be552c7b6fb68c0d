"""Perceptrons on one flat vector, with a hand-written gradient.

With all parameters in one vector, Adam and a moving average are one call each. The hand-written gradient
avoids the overhead of autograd, with which a step of BCQ at 128 x 128 took 1.4 (batch 256) to 1.6 times
(batch 32) as long. A test checks that both gradients are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shpi._torch.layers import Layers, export, make_layers
from shpi.protocols import Float32Array


class Perceptron:
    """A multilayer perceptron with relu between its layers; parameters and gradient are views of vectors."""

    def __init__(self, torch: Any, sizes: Sequence[int], values: Any, gradient: Any = None) -> None:
        self.torch, self.sizes, self.values, self.gradient = torch, tuple(sizes), values, gradient
        self.layers = _views(sizes, values)
        self.slopes = [] if gradient is None else _views(sizes, gradient)

    def __call__(self, x: Any) -> Any:
        """Outputs [n, out] of inputs [n, in]."""
        return self.activations(x)[-1]

    def activations(self, x: Any) -> list[Any]:
        """The inputs, the activations of each hidden layer, and the outputs."""
        outputs = [x]
        for place in range(0, len(self.layers), 2):
            x = self.torch.addmm(self.layers[place + 1], x, self.layers[place])
            outputs.append(x if place == len(self.layers) - 2 else x.relu_())
        return outputs

    def backward(self, activations: list[Any], slope: Any) -> None:
        """Write the gradient of a loss whose derivative by the outputs is ``slope`` [n, out]."""
        torch = self.torch
        for place in range(len(self.layers) - 2, -1, -2):
            below = activations[place // 2]
            torch.mm(below.t(), slope, out=self.slopes[place])
            torch.sum(slope, 0, out=self.slopes[place + 1])
            if place:  # through the relu: 0 where the unit below was inactive
                above = torch.mm(slope, self.layers[place].t())
                slope = torch.ops.aten.threshold_backward(above, below, 0)

    def copy(self) -> Perceptron:
        """A copy of the network with its own parameters, without a gradient."""
        return Perceptron(self.torch, self.sizes, self.values.clone())

    def export(self) -> tuple[list[Float32Array], list[Float32Array]]:
        """Copies of the weights and of the biases, in numpy."""
        return export(self.layers)


def perceptrons(
    torch: Any, sizes: Sequence[int], count: int, rng: np.random.Generator
) -> tuple[Any, list[Perceptron]]:
    """One vector of parameters with its gradient, and ``count`` networks of equal sizes on its parts."""
    parts = [
        torch.cat([layer.detach().reshape(-1) for layer in make_layers(torch, sizes, rng, last=0.1)])
        for _ in range(count)
    ]
    values = torch.cat(parts)
    values.grad = torch.zeros_like(values)
    pieces = zip(values.chunk(count), values.grad.chunk(count), strict=True)
    return values, [Perceptron(torch, sizes, value, slope) for value, slope in pieces]


def _views(sizes: Sequence[int], vector: Any) -> Layers:
    """W_0 [in, out], b_0 [out], W_1, … as views of a flat vector."""
    views: Layers = []
    start = 0
    for size_in, size_out in zip(sizes[:-1], sizes[1:], strict=True):
        middle, end = start + size_in * size_out, start + (size_in + 1) * size_out
        views += [vector[start:middle].view(size_in, size_out), vector[middle:end]]
        start = end
    return views
