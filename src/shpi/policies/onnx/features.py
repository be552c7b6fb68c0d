"""Feature maps as nodes. Fourier features are taken in float64: there they agree with ours to 1e-6."""

from __future__ import annotations

from typing import Any

import numpy as np

from shpi.errors import ConfigError
from shpi.features import (
    CellsMap,
    ChainMap,
    HingesMap,
    IdentityMap,
    OneHotMap,
    PowersMap,
    RandomFourierMap,
    StandardiseMap,
    UnionMap,
)
from shpi.policies.onnx.graph import Graph, Value


def features(graph: Graph, phi: Any, x: Value) -> Value:
    """phi(x), [n, p]."""
    if isinstance(phi, ChainMap):
        for step in phi.steps:
            x = features(graph, step, x)
        return x
    if isinstance(phi, UnionMap):
        return graph.add("Concat", *(features(graph, feature_map, x) for feature_map in phi.parts), axis=1)
    if isinstance(phi, StandardiseMap):
        return graph.add("Div", graph.add("Sub", x, graph.constant(phi.mean)), graph.constant(phi.scale))
    if isinstance(phi, IdentityMap):
        return _after_one(graph, [x], x, phi.intercept)
    if isinstance(phi, RandomFourierMap):
        return _fourier(graph, phi, x)
    if isinstance(phi, PowersMap):
        return _powers(graph, phi, x)
    if isinstance(phi, HingesMap):
        picked = graph.add("Gather", x, graph.constant(phi.columns, np.int64), axis=1)
        bent = graph.add("Relu", graph.add("Sub", picked, graph.constant(phi.places)))
        return _after_one(graph, [x, bent], x, phi.intercept)
    if isinstance(phi, OneHotMap):
        state = graph.add("Gather", x, graph.constant([phi.column], np.int64), axis=1)
        return graph.real(graph.add("Equal", state, graph.constant(np.arange(phi.n_states)[None])))
    if isinstance(phi, CellsMap):
        rows = graph.add("Unsqueeze", x, graph.constant([1], np.int64))  # [n, 1, d]
        same = graph.real(graph.add("Equal", rows, graph.constant(phi.cells[None])))  # [n, S, d]
        return graph.add("ReduceMin", same, graph.constant([2], np.int64), keepdims=0)
    raise unknown(phi)


def _after_one(graph: Graph, parts: list[Value], x: Value, intercept: bool) -> Value:
    """The parts side by side, after a column of ones if there is an intercept."""
    if intercept:
        first = graph.add("Gather", x, graph.constant([0], np.int64), axis=1)
        ones = graph.add("Add", graph.add("Sub", first, first), graph.constant(1.0))
        parts = [ones, *parts]
    return parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=1)


def _fourier(graph: Graph, phi: RandomFourierMap, x: Value) -> Value:
    size = float(np.sqrt(1.0 / phi.frequencies.shape[1]))
    angles = graph.add("MatMul", x, graph.constant(phi.frequencies))
    quarter = graph.add("Add", angles, graph.constant(np.pi / 2))  # not every runtime has cosines in float64
    waves = [graph.scaled(graph.add("Sin", angle), size) for angle in (quarter, angles)]
    return _after_one(graph, waves, x, phi.intercept)


def _powers(graph: Graph, phi: PowersMap, x: Value) -> Value:
    inner = x
    if phi.limit is not None and phi.degree > 1:
        low, high = graph.constant(-phi.limit), graph.constant(phi.limit)
        inner = graph.add("Min", graph.add("Max", x, low), high)
    parts, power = [x], inner
    for _ in range(phi.degree - 1):
        power = graph.add("Mul", power, inner)
        parts.append(power)
    return _after_one(graph, parts, x, phi.intercept)


def unknown(thing: Any) -> ConfigError:
    """The error for what has no ONNX form."""
    return ConfigError(
        expected="a policy whose parts have an ONNX form",
        found=f"a {type(thing).__name__}",
        where="to_onnx",
        remedy="serve it with shpi serve, or learn with the oracle 'ridge' or 'mlp'",
    )
