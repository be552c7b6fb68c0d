"""Scores and probabilities as nodes: the same formulas as the policies' own."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from shpi.policies.onnx.features import features, unknown
from shpi.policies.onnx.graph import Graph, Value
from shpi.policies.onnx.support import constrained, limited, pseudo_counts, shared, tabular
from shpi.policies.onnx.trees import trees

_SMALLEST = 1e-300  # logarithms of this stand for those of 0, where a mask is applied afterwards


def scores(graph: Graph, scorer: Any) -> Value:
    """f(x, .), [n, A]."""
    kind = type(scorer).__name__
    if kind == "LinearScorer":
        phi = features(graph, scorer.features, graph.contexts)
        return graph.add("MatMul", phi, graph.constant(scorer.weights.T))
    if kind == "MlpScorer":
        hidden = features(graph, scorer.features, graph.contexts)
        for place, (matrix, bias) in enumerate(zip(scorer.weights, scorer.biases, strict=True)):
            hidden = graph.add(
                "Add", graph.add("MatMul", hidden, graph.constant(matrix)), graph.constant(bias)
            )
            if place + 1 < len(scorer.weights):
                hidden = graph.add("Relu", hidden)
        return hidden
    if kind == "SumScorer":
        return graph.add("Add", scores(graph, scorer.first), scores(graph, scorer.second))
    if kind in ("PolicyDensity", "RelativeDensity"):  # of mu among all actions
        with graph.allowing(graph.everything()):
            density = probabilities(graph, scorer.mu)
        return density if kind == "PolicyDensity" else graph.add("Div", density, graph.row_max(density))
    maker = _SCORERS.get(kind)
    if maker is None:
        raise unknown(scorer)
    return maker(graph, scorer)


def _masked(graph: Graph, scorer: Any) -> Value:
    return graph.where(graph.candidates, scores(graph, scorer), -np.inf)


def probabilities(graph: Graph, policy: Any) -> Value:
    """pi(.|x), [n, A]."""
    policy = getattr(policy, "saved_form", policy)
    maker = _MAKERS.get(type(policy).__name__)
    if maker is None:
        raise unknown(policy)
    return maker(graph, policy)


def _uniform(graph: Graph, policy: Any) -> Value:
    return graph.normalised(graph.real(graph.candidates))


def _constant(graph: Graph, policy: Any) -> Value:
    return graph.normalised(graph.where(graph.candidates, graph.constant(policy.probs[None]), 0.0))


def _mixture(graph: Graph, policy: Any) -> Value:
    parts = [
        graph.scaled(probabilities(graph, component), float(weight))
        for weight, component in zip(policy.weights, policy.policies, strict=True)
        if weight > 0
    ]
    return reduce(lambda left, right: graph.add("Add", left, right), parts)


def _greedy(graph: Graph, policy: Any) -> Value:
    return graph.one_hot_max(_masked(graph, policy.scorer), policy.n_actions)


def _epsilon_greedy(graph: Graph, policy: Any) -> Value:
    best = _greedy(graph, policy) if policy.ties is None else _near_ties(graph, policy)
    best = graph.scaled(best, 1.0 - policy.epsilon)
    return graph.add("Add", graph.scaled(_uniform(graph, policy), policy.epsilon), best)


def _near_ties(graph: Graph, policy: Any) -> Value:
    """All that is within ``ties`` of the best, in equal shares."""
    f = scores(graph, policy.scorer)
    top = graph.row_max(graph.where(graph.candidates, f, -np.inf))
    size = graph.add("Add", graph.add("Abs", top), graph.add("Abs", f))
    near = graph.add("LessOrEqual", graph.add("Sub", top, f), graph.scaled(size, policy.ties))
    return graph.normalised(graph.real(graph.add("And", near, graph.candidates)))


def _tempered(graph: Graph, values: Value, temperature: float) -> Value:
    shifted = graph.add("Sub", values, graph.row_max(values))
    return graph.add("Div", shifted, graph.constant(temperature))


def _softmax(graph: Graph, policy: Any) -> Value:
    return graph.softmax(_tempered(graph, _masked(graph, policy.scorer), policy.temperature))


def _log_mu(graph: Graph, mu: Value) -> Value:
    """Log mu, and -inf where mu is 0."""
    positive = graph.add("Greater", mu, graph.constant(0.0))
    logs = graph.add("Log", graph.add("Max", mu, graph.constant(_SMALLEST)))
    return graph.where(positive, logs, -np.inf)


def _regularised(graph: Graph, policy: Any) -> Value:
    mu = probabilities(graph, policy.mu)
    positive = graph.add("Greater", mu, graph.constant(0.0))
    supported = graph.where(positive, _masked(graph, policy.scorer), -np.inf)
    logits = graph.add("Add", _tempered(graph, supported, policy.beta), _log_mu(graph, mu))
    return graph.softmax(logits)


def _tilted(graph: Graph, policy: Any) -> Value:
    logits = graph.scaled(_log_mu(graph, probabilities(graph, policy.mu)), policy.power)
    if policy.size:
        f = graph.where(graph.candidates, scores(graph, policy.scorer), 0.0)
        shifted = graph.add("Sub", f, graph.row_max(f))
        logits = graph.add("Add", logits, graph.scaled(shifted, policy.size))
    return graph.softmax(logits)


def _likely(graph: Graph, policy: Any) -> Value:
    mu = probabilities(graph, policy.mu)
    least = graph.scaled(graph.row_max(mu), policy.share)
    likely = graph.add("GreaterOrEqual", mu, least)
    return graph.one_hot_max(graph.where(likely, _masked(graph, policy.scorer), -np.inf), policy.n_actions)


def _bounded(graph: Graph, policy: Any) -> Value:
    mu, masked = probabilities(graph, policy.mu), _masked(graph, policy.scorer)
    reach = graph.add("Div", graph.constant(policy.reach), graph.row_max(mu))
    caps = graph.add("Mul", graph.add("Max", reach, graph.constant(1.0)), mu)
    # What the better ones leave of 1, at most the cap; of equal scores the first is better.
    mine, others = (graph.add("Unsqueeze", masked, graph.constant([axis], np.int64)) for axis in (2, 1))
    first = graph.constant(np.tri(policy.n_actions, k=-1, dtype=bool)[None], np.bool_)
    equal = graph.add("And", graph.add("Equal", others, mine), first)
    better = graph.real(graph.add("Or", graph.add("Greater", others, mine), equal))  # [n, A, A]
    rows = graph.add("Unsqueeze", caps, graph.constant([1], np.int64))
    last = graph.constant([2], np.int64)
    taken = graph.add("ReduceSum", graph.add("Mul", better, rows), last, keepdims=0)
    left = graph.add("Max", graph.add("Sub", graph.constant(1.0), taken), graph.constant(0.0))
    return graph.normalised(graph.add("Min", left, caps))


def _logistic(graph: Graph, policy: Any) -> Value:
    phi = features(graph, policy.features, graph.contexts)
    logits = graph.add("MatMul", phi, graph.constant(policy.weights.T))
    allowed = _seen(graph, policy)
    probs = graph.softmax(graph.where(allowed, logits, -np.inf))
    if policy.floor == 0:
        return probs
    noise = graph.scaled(graph.normalised(graph.real(allowed)), policy.floor)
    return graph.add("Add", graph.scaled(probs, 1 - policy.floor), noise)


def _seen(graph: Graph, policy: Any) -> Value:
    """Candidates that the log has seen; all candidates where none of them was."""
    tried = graph.constant(np.asarray(policy.seen, dtype=bool)[None], np.bool_)
    known = graph.add("And", graph.candidates, tried)
    some = graph.add("Greater", graph.row_sum(graph.real(known)), graph.constant(0.0))
    none = graph.add("Not", some)  # a choice between truth values is not in every runtime
    return graph.add("Or", known, graph.add("And", none, graph.candidates))


def _cloned(graph: Graph, policy: Any) -> Value:
    phi = features(graph, policy.features, graph.contexts)
    raw = graph.add("MatMul", phi, graph.constant(policy.weights.T))
    raised = graph.add("Max", raw, graph.constant(1e-6))
    tried = graph.constant(np.asarray(policy.seen, dtype=bool)[None], np.bool_)
    known = graph.add("And", graph.candidates, tried)
    some = graph.add("Greater", graph.row_sum(graph.real(known)), graph.constant(0.0))
    probs = graph.where(known, raised, 0.0)
    return graph.normalised(graph.add("Where", some, probs, graph.real(graph.candidates)))


def _limited(graph: Graph, policy: Any) -> Value:
    mu, masked = probabilities(graph, policy.mu), _masked(graph, policy.scorer)
    return limited(graph, mu, masked, scores(graph, policy.support), policy)


def _constrained(graph: Graph, policy: Any) -> Value:
    return constrained(graph, _masked(graph, policy.imitation), _masked(graph, policy.q), policy)


def _padded(graph: Graph, policy: Any) -> Value:
    """A policy beside actions that it does not know, which are taken where nothing else is allowed."""
    known = graph.constant(np.arange(policy.policy.n_actions), np.int64)
    mask, everything = graph.add("Gather", graph.candidates, known, axis=1), graph.candidates
    able = graph.any_of(mask)
    with graph.allowing(graph.add("Or", mask, graph.add("Not", able))):
        probs = probabilities(graph, policy.policy)
    beside = graph.add("MatMul", probs, graph.constant(np.eye(policy.policy.n_actions, policy.n_actions)))
    return graph.add("Where", able, beside, graph.normalised(graph.real(everything)))


_SCORERS: dict[str, Callable[[Graph, Any], Value]] = {
    "GbdtScorer": trees,
    "PseudoCounts": pseudo_counts,
    "SharedScorer": shared,
}
_MAKERS: dict[str, Callable[[Graph, Any], Value]] = {
    "AmongLikely": _likely,
    "BatchConstrained": _constrained,
    "BehaviourRegularised": _regularised,
    "BoundedRatio": _bounded,
    "ClonedPolicy": _cloned,
    "ConstantPolicy": _constant,
    "EpsilonGreedy": _epsilon_greedy,
    "Greedy": _greedy,
    "LogisticPolicy": _logistic,
    "Mixture": _mixture,
    "Padded": _padded,
    "Softmax": _softmax,
    "SupportLimited": _limited,
    "TabularPolicy": tabular,
    "Tilted": _tilted,
    "UniformPolicy": _uniform,
}
