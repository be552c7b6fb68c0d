r"""Choose features and ridge for LSTD by cross-validation over users.

The squared Bellman residual on held-out data must not decide: E delta^2 contains gamma^2 Var(V(x')), so it
prefers values that hardly vary, whatever the truth. Instead all candidates are compared as regressions on the
*same* target, made from one reference value U that was fitted without the held-out users:

    y_t = sum_{m<h} gamma^m r_{t+m} + gamma^h U(x_{t+h}),      score(V) = Var(y - V(x)) on held-out rows

Since y does not depend on the candidate, differences of scores are differences of E (V - T^h U)^2: nothing
is penalised but the error. The variance, not the mean square, is taken since a constant in V cancels in
advantages (up to 1 - gamma^k). The reference is first a plain candidate and a long h, which hardly depends on
U; then the winner becomes the reference for a shorter, less noisy h, and so on: h = 100, 30, 10, 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shpi.data.logged import LoggedData
from shpi.data.slicing import cut
from shpi.features import Chain, FeatureMap, Hinges, Powers, RandomFourier, Recipe, Standardise
from shpi.features.base import fit_features
from shpi.protocols import Float64Array, FloatArray, Int64Array
from shpi.values.moments import LstdSums, feature_blocks
from shpi.values.transitions import rewards_of, usable_transitions

RIDGES = (0.3, 3.0, 30.0, 300.0, 3000.0)  # in decisions; less lets near-singular systems explode
SMALL_WIDTH = 6  # up to here random Fourier features are tried: their number grows fast with the dimension
_LOOKAHEADS = (100, 30, 10, 3)
_BANDWIDTHS = (0.25, 0.5, 1.0, 2.0)  # in medians of the distance between two contexts
_MAP_ROWS = 20_000  # contexts that a feature map is fitted to
_LEAST_ROWS = 60  # below this nothing is chosen


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """A fitted feature map and a ridge."""

    features: FeatureMap
    ridge: float


def default_recipes(width: int, n_features: int, seed: int) -> tuple[Recipe, ...]:
    """Linear, quadratic, splines, and up to `SMALL_WIDTH` dimensions random Fourier features."""
    shapes: list[Recipe] = [
        Powers(degree=2, intercept=False),
        Powers(degree=1, intercept=False),
        Hinges(knots=3, intercept=False),
    ]
    if width <= SMALL_WIDTH:
        shapes += [
            RandomFourier(n_features=n_features, bandwidth_factor=factor, intercept=False, seed=seed)
            for factor in _BANDWIDTHS
        ]
    return tuple(Chain((Standardise(), shape)) for shape in shapes)


def choose(
    logs: LoggedData,
    recipes: Sequence[Recipe | FeatureMap],
    ridges: Sequence[float],
    *,
    gamma: float,
    folds: int,
    max_rows: int,
    seed: int,
) -> Choice:
    """The recipe and ridge with the best held-out score; see the top of this file.

    Args:
        logs: the log, of which at most about ``max_rows`` decisions of random users are used.
        recipes: the feature maps to compare; the first one is also the first reference.
        ridges: the ridges to compare.
        gamma: the discount.
        folds: the number of parts that users are divided into.
        max_rows: how many decisions are looked at.
        seed: of the sample of users and of the folds.
    """
    draws = np.random.default_rng(seed)
    sample = map_sample(logs.contexts, draws)
    if len(recipes) * len(ridges) == 1 or len(logs) < _LEAST_ROWS:
        return Choice(features=fit_features(recipes[0], sample), ridge=ridges[len(ridges) // 2])
    part = _some_users(logs, max_rows, draws)
    fold = _folds(part, folds, draws)
    maps = [fit_features(recipe, sample) for recipe in recipes]
    pairs = [_held_out(part, features, ridges, gamma, fold) for features in maps]
    now, following = (np.stack([pair[i] for pair in pairs]) for i in (0, 1))  # [recipes, ridges, n]
    best = _tournament(part, now, following, gamma, fold)
    return Choice(features=maps[best[0]], ridge=ridges[best[1]])


def map_sample(contexts: FloatArray, draws: np.random.Generator) -> FloatArray:
    """The contexts that a feature map is fitted to: all, or a random sample of many."""
    if len(contexts) <= _MAP_ROWS:
        return contexts
    return contexts[np.sort(draws.choice(len(contexts), size=_MAP_ROWS, replace=False))]


def _held_out(
    logs: LoggedData, features: FeatureMap, ridges: Sequence[float], gamma: float, fold: Int64Array
) -> tuple[Float64Array, Float64Array]:
    """V(x_t) and V(x_{t+1}) of every decision under fits without its fold, [ridges, n] each."""
    blocks = list(feature_blocks(logs, features))
    phi, ahead = (np.concatenate([b[i] for b in blocks]) for i in (1, 2))
    usable, rewards = usable_transitions(logs), rewards_of(logs)
    parts = [_sums(phi, ahead, rewards, usable & (fold == f)) for f in range(int(fold.max()) + 1)]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    now, following = np.empty((len(ridges), len(logs))), np.empty((len(ridges), len(logs)))
    for f, part in enumerate(parts):
        theta = np.stack([(whole - part).solve(gamma, ridge) for ridge in ridges])  # [ridges, p + 1]
        rows = fold == f
        now[:, rows], following[:, rows] = theta @ phi[rows].T, theta @ ahead[rows].T
    return now, following


def _sums(phi: Float64Array, ahead: Float64Array, rewards: Float64Array, rows: np.ndarray) -> LstdSums:
    x, r = phi[rows], rewards[rows]
    return LstdSums(n=len(r), gram=x.T @ x, cross=x.T @ ahead[rows], target=x.T @ r, square=float(r @ r))


def _tournament(
    logs: LoggedData, now: Float64Array, following: Float64Array, gamma: float, fold: Int64Array
) -> tuple[int, int]:
    """The winning (recipe, ridge); values are [recipes, ridges, n]."""
    usable, rewards = usable_transitions(logs), rewards_of(logs)
    left = np.repeat(logs.offsets[1:], np.diff(logs.offsets)) - np.arange(len(logs))  # rows to the end
    best = (0, now.shape[1] // 2)
    for lookahead in _LOOKAHEADS:
        delta = np.where(usable, rewards + gamma * following[best] - now[best], 0.0)
        target = now[best] + delta
        for m in range(1, min(lookahead, int(left.max()))):
            rows = np.flatnonzero(left > m)
            target[rows] += gamma**m * delta[rows + m]
        scores = np.zeros(now.shape[:2])
        for f in range(int(fold.max()) + 1):
            rows = usable & (fold == f)
            if rows.any():
                scores += np.var(target[rows] - now[:, :, rows], axis=2) * rows.sum()
        place = int(scores.argmin())
        best = (place // now.shape[1], place % now.shape[1])
    return best


def _some_users(logs: LoggedData, max_rows: int, draws: np.random.Generator) -> LoggedData:
    """Random users with about ``max_rows`` decisions in all; a longer trajectory is cut."""
    if len(logs) <= max_rows:
        return logs
    order = draws.permutation(logs.n_users)
    counts = np.bincount(logs.user_codes, weights=np.diff(logs.offsets), minlength=logs.n_users)
    enough = int(np.searchsorted(np.cumsum(counts[order]), max_rows)) + 1
    part = logs.select(np.isin(logs.user_codes, order[:enough]))
    return part if len(part) <= 2 * max_rows else cut(part, np.arange(len(part)) < max_rows)


def _folds(logs: LoggedData, folds: int, draws: np.random.Generator) -> Int64Array:
    """The fold of every decision [n]: by user, or by stretches of time where there are too few users."""
    if logs.n_users >= 2 * folds:
        return (draws.permutation(logs.n_users) % folds)[logs.user_codes][logs.trajectory_of_row]
    stretch = np.arange(len(logs)) * (4 * folds) // len(logs)
    return stretch % folds
