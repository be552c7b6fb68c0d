"""Support-limited policies as nodes: SPIBB, MBS, BCQ; and tables and padded policies."""

from __future__ import annotations

from typing import Any

import numpy as np

from shpi.policies.onnx.features import features
from shpi.policies.onnx.graph import Graph, Value

_OF_ROW = 1  # the axis of the actions


def pseudo_counts(graph: Graph, counts: Any) -> Value:
    """n(x, a) = phi'phi / phi'(Gram of a)^-1 phi - ridge, at least 0; [n, A]."""
    phi = features(graph, counts.features, graph.contexts)
    size = graph.row_sum(graph.add("Mul", phi, phi))  # [n, 1]
    products = graph.add("MatMul", phi, graph.constant(counts.inverses))  # [A, n, p]
    last = graph.constant([2], np.int64)
    leverage = graph.add("ReduceSum", graph.add("Mul", products, phi), last, keepdims=0)  # [A, n]
    leverage = graph.add("Transpose", leverage, perm=[1, 0])
    positive = graph.add("Greater", leverage, graph.constant(0.0))
    ratio = graph.where(positive, graph.add("Div", size, leverage), 0.0)
    return graph.add("Max", graph.add("Sub", ratio, graph.constant(counts.ridge)), graph.constant(0.0))


def limited(graph: Graph, mu: Value, masked: Value, support: Value, policy: Any) -> Value:
    """`SupportLimited`: greedy where the log supports it, mu elsewhere."""
    enough = graph.add("GreaterOrEqual", support, graph.constant(policy.threshold))
    supported = graph.add("And", enough, graph.candidates)
    some = graph.any_of(supported)
    best = graph.one_hot_max(graph.where(supported, masked, -np.inf), policy.n_actions)
    if policy.mode == "spibb":
        unsupported = graph.real(graph.add("Not", supported))
        kept = graph.add("Mul", mu, unsupported)
        left = graph.add("Sub", graph.constant(1.0), graph.row_sum(kept))
        best = graph.add("Add", kept, graph.add("Mul", best, graph.add("Max", left, graph.constant(0.0))))
    return graph.add("Where", some, best, mu)


def constrained(graph: Graph, logits: Value, masked: Value, policy: Any) -> Value:
    """`BatchConstrained`: the best Q among mu's likely actions; logits and Q are -inf where not allowed."""
    with np.errstate(divide="ignore"):
        least = graph.add("Add", graph.row_max(logits), graph.constant(np.log(policy.threshold)))
    eligible = graph.add("GreaterOrEqual", logits, least)
    return graph.one_hot_max(graph.where(eligible, masked, -np.inf), policy.n_actions)


def tabular(graph: Graph, policy: Any) -> Value:
    """The row of a table for the state in a column."""
    state = graph.add("Gather", graph.contexts, graph.constant(policy.column, np.int64), axis=_OF_ROW)
    rows = graph.add("Gather", graph.constant(policy.table), graph.whole(state), axis=0)
    return graph.normalised(graph.where(graph.candidates, rows, 0.0))


def shared(graph: Graph, scorer: Any) -> Value:
    """`SharedScorer`: added one by one in single precision, as it does."""
    total = graph.constant((scorer.actions + scorer.constant)[None], np.float32)
    for column, slope in enumerate(scorer.slopes):
        place = graph.constant([column], np.int64)
        x = graph.single(graph.add("Gather", graph.contexts, place, axis=_OF_ROW))  # [n, 1]
        total = graph.add("Add", total, graph.add("Mul", x, graph.constant(slope, np.float32)))
    return graph.real(total)
