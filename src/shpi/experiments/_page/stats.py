"""Statistics over trials, for comparisons of methods.

Trials with the same seed are pairs: all methods learn from the same log and are tried on the same users.

    mean ± sd               over trials, as the paper reports
    interquartile mean      the mean of the middle half, robust against a single failed trial
    bootstrap interval      percentiles over resampled trials, stratified: each world keeps its trials
    P(best)                 the share of resamples of the seeds in which a method has the highest mean
    sign-flip test          p = P(mean of randomly signed differences >= the one observed), exact up to 2^14
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from shpi.errors import DataError
from shpi.protocols import Float64Array

RESAMPLES = 2000  # bootstrap samples
EXACT = 14  # up to this many differences, all 2^n signs are enumerated


class Summary(NamedTuple):
    """The reported statistics of one method."""

    n: int
    mean: float
    deviation: float  # over trials, n - 1 in the denominator; 0 for one trial
    interquartile_mean: float
    low: float  # lower end of its bootstrap interval
    high: float


def summarise(values: Sequence[float] | Float64Array, *, confidence: float = 0.95, seed: int = 0) -> Summary:
    """Mean, deviation, interquartile mean and its interval."""
    x = _checked(values)
    low, high = middle_interval([x], confidence=confidence, seed=seed)
    deviation = float(x.std(ddof=1)) if len(x) > 1 else 0.0
    return Summary(len(x), float(x.mean()), deviation, interquartile_mean(x), low, high)


def interquartile_mean(values: Sequence[float] | Float64Array) -> float:
    """The mean without the lowest and the highest floor(n / 4) values."""
    return float(_middle(_checked(values)[None, :])[0])


def middle_interval(
    groups: Sequence[Float64Array],
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """A bootstrap interval of the interquartile mean of all groups together; each group is a stratum."""
    rng = np.random.default_rng(seed)
    parts = []
    for group in groups:
        x = _checked(group)
        parts.append(x[rng.integers(len(x), size=(resamples, len(x)))])  # [R, n]
    means = _middle(np.concatenate(parts, axis=1))
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)


def probability_of_best(
    trials: Mapping[str, Float64Array], *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, float]:
    """The share of resamples of the seeds in which each method has the highest mean; ties are split.

    Args:
        trials: values [n] by method, with the same seeds in the same order.
        resamples: bootstrap samples of the seeds, the same for all methods.
        seed: random seed of the samples.
    """
    names = list(trials)
    table = np.array([_checked(trials[name]) for name in names])  # [M, n]
    rng = np.random.default_rng(seed)
    drawn = rng.integers(table.shape[1], size=(resamples, table.shape[1]))
    means = table[:, drawn].mean(axis=2)  # [M, R]
    best = means >= means.max(axis=0) - 1e-12 * np.abs(means).max()
    shares = (best / best.sum(axis=0)).mean(axis=1)
    return {name: float(share) for name, share in zip(names, shares, strict=True)}


class Paired(NamedTuple):
    """A paired comparison of two methods."""

    n: int
    difference: float  # the mean of a - b
    wins: float  # the share of the seeds where a > b; ties count half
    p: float  # one-sided p-value of the difference


def paired(a: Float64Array, b: Float64Array, *, resamples: int = 20_000, seed: int = 0) -> Paired:
    """The sign-flip test of mean(a - b) > 0; the seeds must be the same in the same order."""
    d = _checked(a) - _checked(b)
    n = len(d)
    if n <= EXACT:
        signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)  # [2^n, n]
        extra = 0
    else:
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(resamples, n))
        extra = 1  # the observed signs count as one of the samples
    flipped = signs @ d
    at_least = flipped >= d.sum() - 1e-12 * np.abs(d).sum()
    wins = float((d > 0).mean() + 0.5 * (d == 0).mean())
    return Paired(n, float(d.mean()), wins, float((at_least.sum() + extra) / (len(signs) + extra)))


def _middle(samples: Float64Array) -> Float64Array:
    """The interquartile mean of every row, [R]."""
    cut = samples.shape[1] // 4
    ordered = np.sort(samples, axis=1)
    middle: Float64Array = ordered[:, cut : samples.shape[1] - cut].mean(axis=1)
    return middle


def _checked(values: Sequence[float] | Float64Array) -> Float64Array:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not len(x) or not np.isfinite(x).all():
        raise DataError(expected="one finite number per trial", found=f"{x.shape} with {x!r:.60}")
    return x
