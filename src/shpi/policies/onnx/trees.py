r"""Boosted trees as nodes: a leaf is reached where all decisions above it go its way.

    reached(x, a, leaf) = 1[sum over the nodes above it of (turns towards it) = depth of the leaf]

A split looks at a column of the context, or at the action and its features. The latter do not depend on x,
so they are one constant per action; the former are compared once per context. Everything is float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shpi.policies.onnx.features import unknown
from shpi.policies.onnx.graph import Graph, Value
from shpi.protocols import BoolArray, Float64Array, Int64Array

_CATEGORICAL, _MISSING = 1, 12  # bits of LightGBM's decision_type
_ZERO_IS_MISSING = 4  # LightGBM's code for that


def trees(graph: Graph, scorer: Any) -> Value:
    """f(x, .) of a `GbdtScorer`, [n, A]."""
    of_actions = np.column_stack([np.arange(scorer.n_actions), scorer.table])  # [A, 1 + m]
    body = scorer.text.partition("end of trees")[0]
    total: Value | None = None
    for text in body.split("\nTree=")[1:]:
        facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        tree = _tree(graph, scorer, facts, of_actions)
        total = tree if total is None else graph.add("Add", total, tree)
    if total is None:
        raise unknown(scorer)
    return graph.add("Add", graph.scaled(total, scorer.scale), graph.constant(scorer.centre))


def _tree(graph: Graph, scorer: Any, facts: dict[str, str], of_actions: Float64Array) -> Value:
    """The value of one tree, [n, A]."""
    leaves = _numbers(facts, "leaf_value")  # [L]
    if len(leaves) == 1:
        zeros = np.zeros((scorer.width, scorer.n_actions))
        return graph.add(
            "Add", graph.add("MatMul", graph.contexts, graph.constant(zeros)), graph.constant(leaves)
        )
    columns, kinds = (_numbers(facts, key).astype(np.int64) for key in ("split_feature", "decision_type"))
    if (kinds & _MISSING == _ZERO_IS_MISSING).any():
        raise unknown(scorer)
    turns = _turns(facts, len(leaves))  # [nodes, L]
    fixed = columns >= scorer.width
    left = _left_of_actions(facts, columns, kinds, fixed, of_actions, scorer.width)  # [A, fixed nodes]
    met = np.where(left, 1.0, -1.0) @ turns[fixed]  # [A, L]
    depth = np.abs(turns).sum(axis=0)  # [L]
    sums = graph.constant(met[None])
    if not fixed.all():
        picked = graph.add("Gather", graph.contexts, graph.constant(columns[~fixed], np.int64), axis=1)
        lower = graph.add(
            "LessOrEqual", picked, graph.constant(_numbers(facts, "threshold")[~fixed])
        )  # [n, nodes]
        signs = graph.add("Sub", graph.scaled(graph.real(lower), 2.0), graph.constant(1.0))
        by_context = graph.add("MatMul", signs, graph.constant(turns[~fixed]))  # [n, L]
        sums = graph.add("Add", graph.add("Unsqueeze", by_context, graph.constant([1], np.int64)), sums)
    reached = graph.real(graph.add("Equal", sums, graph.constant(depth)))  # [n, A, L]
    return graph.add("MatMul", reached, graph.constant(leaves))


def _turns(facts: dict[str, str], leaves: int) -> Float64Array:
    """1 where a leaf lies left below a node, -1 where it lies right, 0 elsewhere, [nodes, L]."""
    left, right = (_numbers(facts, key).astype(np.int64) for key in ("left_child", "right_child"))
    turns = np.zeros((leaves - 1, leaves))
    waiting: list[tuple[int, list[tuple[int, float]]]] = [(0, [])]
    while waiting:
        node, above = waiting.pop()
        for child, turn in ((int(left[node]), 1.0), (int(right[node]), -1.0)):
            path = [*above, (node, turn)]
            if child >= 0:
                waiting.append((child, path))
            for place, direction in path if child < 0 else ():
                turns[place, ~child] = direction
    return turns


def _left_of_actions(
    facts: dict[str, str],
    columns: Int64Array,
    kinds: Int64Array,
    fixed: BoolArray,
    of_actions: Float64Array,
    width: int,
) -> BoolArray:
    """Whether each action turns left at each node that does not look at the context, [A, fixed nodes]."""
    thresholds = _numbers(facts, "threshold")
    bounds = _numbers(facts, "cat_boundaries").astype(np.int64)
    words = _numbers(facts, "cat_threshold").astype(np.int64)
    left = np.zeros((len(of_actions), int(fixed.sum())), dtype=bool)
    for place, node in enumerate(np.flatnonzero(fixed)):
        values = of_actions[:, columns[node] - width]
        if not kinds[node] & _CATEGORICAL:
            left[:, place] = values <= thresholds[node]
            continue
        number = int(thresholds[node])
        members = words[bounds[number] : bounds[number + 1]]  # 32 categories in each
        category = values.astype(np.int64)
        inside = (category >= 0) & (category < 32 * len(members)) & (category == values)
        bits = members[np.where(inside, category // 32, 0)] >> (category % 32)
        left[:, place] = inside & (bits & 1 == 1)
    return left


def _numbers(facts: dict[str, str], key: str) -> Float64Array:
    return np.array(facts.get(key, "").split(), dtype=np.float64)
