"""Random Fourier features: ridge on them approximates kernel ridge with a Gaussian kernel.

    phi(x) = sqrt(1/m) (cos(x'w_1), sin(x'w_1), …, cos(x'w_m), sin(x'w_m)),     w_j ~ N(0, I / h^2)
    E[phi(x)'phi(y)] = exp(-|x - y|^2 / (2 h^2))                               h = bandwidth

Pairs of cosine and sine have a smaller variance than cosines with random phases, and |phi(x)|^2 = 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from shpi.errors import ConfigError
from shpi.features.base import as_matrix
from shpi.features.parts import freeze, saveable
from shpi.protocols import Float64Array, FloatArray

_BLOCK = 50_000  # angles computed together, so that they stay in the cache
_PAIRS_SAMPLE = 1000  # contexts on which the median distance is computed


@dataclass(frozen=True, kw_only=True)
class RandomFourier:
    """A recipe for random Fourier features.

    Args:
        n_features: the number p of features (even), without the intercept.
        bandwidth: h above; None takes ``bandwidth_factor`` times the median distance of two contexts.
        bandwidth_factor: factor of the median distance; 0.5 works well on the synthetic task.
        intercept: whether to put a constant 1 first.
        seed: random seed of the frequencies (and of the sample behind the median).
    """

    n_features: int = 200
    bandwidth: float | None = None
    bandwidth_factor: float = 0.5
    intercept: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_features < 2 or self.n_features % 2:
            raise ConfigError(
                expected="an even n_features of at least 2", found=str(self.n_features), where="RandomFourier"
            )
        for name, value in (("bandwidth", self.bandwidth), ("bandwidth_factor", self.bandwidth_factor)):
            if value is not None and not (np.isfinite(value) and value > 0):
                raise ConfigError(expected=f"a positive {name}", found=str(value), where="RandomFourier")

    def fit(self, contexts: FloatArray) -> RandomFourierMap:
        """Draw the frequencies; the contexts give the width, and the median distance where asked for."""
        x = as_matrix(contexts, not_empty=True)
        draws, pairs = (np.random.default_rng(s) for s in np.random.SeedSequence(self.seed).spawn(2))
        bandwidth = self.bandwidth
        if bandwidth is None:
            bandwidth = self.bandwidth_factor * median_distance(x, pairs)
        frequencies = draws.standard_normal((x.shape[1], self.n_features // 2)) / bandwidth
        return RandomFourierMap(frequencies=frequencies, intercept=self.intercept)


@saveable("features/random-fourier")
@dataclass(frozen=True, kw_only=True, eq=False)
class RandomFourierMap:
    """The fitted form of `RandomFourier`."""

    frequencies: Float64Array  # [d, m]
    intercept: bool = True
    width_in: int = field(init=False, repr=False)  # d
    width: int = field(init=False, repr=False)  # p = 2m, plus one for the intercept

    def __post_init__(self) -> None:
        freeze(self, "frequencies", ndim=2)
        d, m = self.frequencies.shape
        object.__setattr__(self, "width_in", d)
        object.__setattr__(self, "width", 2 * m + self.intercept)

    def transform(self, contexts: FloatArray) -> Float64Array:
        """(1, phi(x)), [n, p], accurate to 1e-7.

        numpy's cosine takes fifteen times as long in double precision and would dominate a fit. So angles
        are reduced to one turn in double precision, and their cosines computed in single precision.
        """
        x = as_matrix(contexts, self.width_in)
        m, first = self.frequencies.shape[1], int(self.intercept)
        features = np.empty((len(x), self.width))
        features[:, :first] = 1.0
        per_turn, size = self.frequencies / (2 * np.pi), np.float32(np.sqrt(1.0 / m))
        step = max(1, _BLOCK // m)
        for start in range(0, len(x), step):
            rows = slice(start, start + step)
            turns = x[rows] @ per_turn  # [b, m]
            turns -= np.rint(turns)
            angles = (2 * np.pi * turns).astype(np.float32)
            features[rows, first : first + m] = size * np.cos(angles)
            features[rows, first + m :] = size * np.sin(angles, out=angles)
        return features


def median_distance(contexts: Float64Array, rng: np.random.Generator) -> float:
    """The median distance between two different contexts, on a sample; 1 when all are the same."""
    size = min(len(contexts), _PAIRS_SAMPLE)
    x = contexts[np.sort(rng.choice(len(contexts), size=size, replace=False))]
    return _median_of_pairs(x.shape, x.dtype.str, x.tobytes())


@lru_cache(maxsize=4)  # learners try several bandwidths: multiples of one distance on the same contexts
def _median_of_pairs(shape: tuple[int, int], dtype: str, content: bytes) -> float:
    """The median distance between two different rows of the array with these bytes."""
    x: Float64Array = np.frombuffer(content, dtype=dtype).reshape(shape)
    square = (x**2).sum(axis=1)
    squared = square[:, None] + square[None, :]
    squared -= 2 * x @ x.T
    different = squared > 1e-12 * max(float(square.max(initial=0.0)), 1e-300)
    different &= ~np.tri(len(x), dtype=bool)  # each pair once
    apart = squared[different]
    return float(np.sqrt(np.median(apart, overwrite_input=True))) if len(apart) else 1.0
