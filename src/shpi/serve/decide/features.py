"""Feature maps for a single context: the arithmetic of `transform` on a vector [d], without its checks.

The operations and their order are those of the maps themselves, so both give the same bits. Folding a
standardisation into the weights would save a microsecond but change bits: when two actions tie, the last bit
decides.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shpi.features import (
    ChainMap,
    FeatureMap,
    HingesMap,
    IdentityMap,
    PowersMap,
    RandomFourierMap,
    StandardiseMap,
    UnionMap,
)
from shpi.protocols import Float64Array

Phi = Callable[[Float64Array], Float64Array]  # [d] to [p]


def compile_features(features: FeatureMap) -> Phi:
    """The map for one context; for an unknown kind of map, ``transform`` is called."""
    if isinstance(features, ChainMap):
        return _chain([compile_features(step) for step in features.steps])
    if isinstance(features, UnionMap):
        parts = [compile_features(phi) for phi in features.parts]
        return lambda x: np.concatenate([phi(x) for phi in parts])
    if isinstance(features, StandardiseMap):
        return _standardise(features)
    if isinstance(features, IdentityMap):
        return _identity(features)
    if isinstance(features, RandomFourierMap):
        return _fourier(features)
    if isinstance(features, HingesMap):
        return _hinges(features)
    if isinstance(features, PowersMap) and features.degree == 1:
        return _identity(IdentityMap(width_in=features.width_in, intercept=features.intercept))
    whole = features.transform
    return lambda x: whole(x[None])[0]


def _chain(steps: list[Phi]) -> Phi:
    def phi(x: Float64Array) -> Float64Array:
        for step in steps:
            x = step(x)
        return x

    return phi


def _standardise(features: StandardiseMap) -> Phi:
    mean, scale = features.mean, features.scale

    def phi(x: Float64Array) -> Float64Array:
        z: Float64Array = x - mean
        z /= scale
        return z

    return phi


def _identity(features: IdentityMap) -> Phi:
    if not features.intercept:
        return lambda x: x
    first = np.ones(features.width_in + 1)

    def phi(x: Float64Array) -> Float64Array:
        z = first.copy()
        z[1:] = x
        return z

    return phi


def _fourier(features: RandomFourierMap) -> Phi:
    m, first = features.frequencies.shape[1], int(features.intercept)
    per_turn, size = features.frequencies / (2 * np.pi), np.float32(np.sqrt(1.0 / m))
    blank = np.ones(features.width)
    turn = 2 * np.pi

    def phi(x: Float64Array) -> Float64Array:
        turns = x @ per_turn
        turns -= np.rint(turns)
        angles = (turn * turns).astype(np.float32)
        z = blank.copy()
        z[first : first + m] = size * np.cos(angles)
        z[first + m :] = size * np.sin(angles)
        return z

    return phi


def _hinges(features: HingesMap) -> Phi:
    columns, places, first, d = features.columns, features.places, int(features.intercept), features.width_in
    blank = np.ones(features.width)

    def phi(x: Float64Array) -> Float64Array:
        z = blank.copy()
        z[first : first + d] = x
        np.maximum(0.0, x[columns] - places, out=z[first + d :])
        return z

    return phi
