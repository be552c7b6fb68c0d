"""`compile_batch`: a policy that answers the contexts of several requests by one matrix product.

Requests that arrive together cost a fixed number of array operations together. It is made for what learners
return by default, a tilted or plain logistic policy on linear features; every other policy is asked one
context at a time (`shpi.serve.decide.compiled`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from shpi.features import ChainMap, FeatureMap, IdentityMap, StandardiseMap
from shpi.features.chain import same_map
from shpi.policies import LinearScorer, Policy, Tilted
from shpi.policies.base import context_width
from shpi.policies.near_mu.logistic import LogisticPolicy
from shpi.protocols import Float64Array

Batch = Callable[[Float64Array], Float64Array]  # contexts [n, d] to probabilities [n, A]
_TRIED = 8  # contexts on which the batch is compared with the policy when it is made
_TOLERANCE = 1e-12  # of a probability


def compile_batch(policy: Policy) -> Batch | None:
    """pi(.|x) of several contexts, equal to ``action_probs`` to 1e-12; None if there is no such way."""
    bare: Any = getattr(policy, "saved_form", policy)
    width = context_width(bare)
    if width is None:
        return None
    batch = None
    if type(bare) is LogisticPolicy and bool(np.all(bare.seen)):
        batch = _logistic(bare)
    elif type(bare) is Tilted:
        batch = _tilted(bare)
    if batch is None:
        return None
    contexts = np.random.default_rng(0).normal(size=(_TRIED, width))
    difference = np.abs(batch(contexts) - bare.action_probs(contexts)).max()
    return batch if difference <= _TOLERANCE else None


def _logistic(policy: LogisticPolicy) -> Batch:
    phi, weights = _transform(policy.features), np.ascontiguousarray(policy.weights.T)
    unmixed, noise = 1.0 - policy.floor, policy.floor / policy.n_actions

    def probs(contexts: Float64Array) -> Float64Array:
        chances = _softmax(phi(contexts) @ weights)
        chances *= unmixed
        chances += noise
        return chances

    return probs


def _tilted(policy: Tilted) -> Batch | None:
    mu: Any = getattr(policy.mu, "saved_form", policy.mu)
    scorer = policy.scorer
    if not (type(scorer) is LinearScorer and type(mu) is LogisticPolicy):
        return None
    if not (same_map(scorer.features, mu.features) and np.all(mu.seen) and mu.floor > 0):
        return None
    phi, n, power = _transform(scorer.features), policy.n_actions, policy.power
    stacked = np.ascontiguousarray(np.concatenate([mu.weights, policy.size * scorer.weights]).T)  # [p, 2A]
    unmixed, noise = 1.0 - mu.floor, mu.floor / n

    def probs(contexts: Float64Array) -> Float64Array:
        both = phi(contexts) @ stacked  # logits of mu beside the tilt, [n, 2A]
        chances = _softmax(both[:, :n])
        chances *= unmixed
        chances += noise
        tilt = both[:, n:]
        if power != 1:  # a power of a small number may be no number: take logarithms
            logits = np.log(chances, out=chances)
            logits *= power
            logits += tilt
            return _softmax(logits)
        tilt -= tilt.max(axis=1, keepdims=True)
        chances *= np.exp(tilt, out=tilt)
        chances /= chances.sum(axis=1, keepdims=True)
        return chances

    return probs


def _transform(features: FeatureMap) -> Batch:
    """The features [n, p] of contexts that were checked when they were encoded."""
    if isinstance(features, StandardiseMap):
        mean, scale = features.mean, features.scale
        return lambda x: (x - mean) / scale
    if isinstance(features, IdentityMap):
        return _after_ones if features.intercept else lambda x: x
    if isinstance(features, ChainMap):
        steps = [_transform(step) for step in features.steps]
        return lambda x: reduce(lambda z, step: step(z), steps, x)
    return features.transform


def _after_ones(x: Float64Array) -> Float64Array:
    features = np.empty((len(x), x.shape[1] + 1))
    features[:, 0] = 1.0
    features[:, 1:] = x
    return features


def _softmax(logits: Float64Array) -> Float64Array:
    """Of each row, in place."""
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    return logits
