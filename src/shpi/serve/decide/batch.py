"""`compile_batch`: a policy that answers the contexts of several requests by one matrix product.

Requests that arrive together share a fixed number of array operations. This covers what learners return by
default, a tilted or plain logistic policy on linear features; every other policy is asked one context at a
time (`shpi.serve.decide.compiled`).
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
_TRIED = 8  # random contexts on which the compiled form is compared with the policy
_TOLERANCE = 1e-12  # largest difference of a probability
_SAFE = 200.0  # two exponentials of this size and their product are far from overflow


def compile_batch(policy: Policy) -> Batch | None:
    """pi(.|x) of several contexts, equal to ``action_probs`` to 1e-12; None if it has no batch form."""
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
        _shift(both.reshape(-1, n))
        tilt = both[:, n:]
        if power != 1:  # a power of a small number may underflow: work with logarithms
            logits = np.exp(both[:, :n])
            logits *= unmixed / _sums(logits)
            logits += noise
            np.log(logits, out=logits)
            logits *= power
            logits += tilt
            return _softmax(logits)
        np.exp(both, out=both)
        chances: Float64Array = both[:, :n]
        chances *= unmixed / _sums(chances)
        chances += noise
        chances = chances * tilt
        chances /= _sums(chances)
        return chances

    return probs


def _shift(logits: Float64Array) -> None:
    """Subtract each row's maximum, in place, if an exponential could overflow or a row underflow to 0."""
    if (
        logits.size
        and max(-np.minimum.reduce(logits, axis=None), np.maximum.reduce(logits, axis=None)) > _SAFE
    ):
        logits -= np.maximum.reduce(logits, axis=1, keepdims=True)


def _sums(values: Float64Array) -> Float64Array:
    sums: Float64Array = np.add.reduce(values, axis=1, keepdims=True)
    return sums


def _transform(features: FeatureMap) -> Batch:
    """A feature map from contexts to [n, p], without checks: encoding has checked the contexts."""
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
    """Softmax of each row, in place."""
    _shift(logits)
    np.exp(logits, out=logits)
    logits /= _sums(logits)
    return logits
