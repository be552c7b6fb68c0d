r"""Choose features and ridge for LSTD by cross-validation over users.

The squared Bellman residual on held-out data must not decide: E delta^2 contains gamma^2 Var(V(x')), so it
prefers values that hardly vary, whatever the truth. Instead all candidates are compared as regressions on the
*same* target, made from one reference value U that was fitted without the held-out users:

    y_t = sum_{m<h} gamma^m r_{t+m} + gamma^h U(x_{t+h}),      score(V) = Var(y - V(x)) on held-out rows

Since y does not depend on the candidate, differences of scores are differences of E (V - T^h U)^2: nothing
is penalised but the error. The variance, not the mean square, is taken since a constant in V cancels in
advantages (up to 1 - gamma^k). The reference is first a plain candidate, then the winner; h is long, so that
y hardly depends on U: with a short h, U + a few rewards, every reference would win its own contest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shpi.data._log.slicing import cut
from shpi.data._log.users import first_users, folds_of_users
from shpi.data.logged import LoggedData
from shpi.features import Chain, FeatureMap, Hinges, Powers, Recipe, Standardise
from shpi.features.base import fit_features
from shpi.features.defaults import CURVED_UP_TO, curves
from shpi.protocols import Float64Array, FloatArray, Int64Array
from shpi.values._lstd.moments import LstdSums, Windows, feature_blocks
from shpi.values._lstd.moments import with_intercept as features_with_intercept

RIDGES = (3.0, 30.0, 300.0, 3000.0)  # in decisions; smaller ones let near-singular systems explode
_SCORE_HORIZON = 100  # h, in decisions
_ROUNDS = 2  # of the selection: the winner of one is the reference of the next
_BANDWIDTHS = (0.25, 0.5, 1.0, 2.0)  # multiples of the median distance between two contexts
_MAP_ROWS = 20_000  # most contexts that a feature map is fitted to
_LEAST_ROWS = 60  # with fewer decisions, nothing is compared


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """A fitted feature map and a ridge, which all shards share."""

    features: FeatureMap
    ridge: float


def default_recipes(width: int, n_features: int, seed: int, tail: float | None = None) -> tuple[Recipe, ...]:
    """Linear, quadratic, quartic, splines, and for narrow contexts random Fourier features."""
    shapes: list[Recipe] = [
        Powers(degree=2, intercept=False, limit=tail),
        Powers(degree=1, intercept=False),
        Powers(degree=4, intercept=False, limit=tail),
        Hinges(knots=3, intercept=False),
    ]
    recipes = [Chain((Standardise(), shape)) for shape in shapes]
    if width <= CURVED_UP_TO["value"]:
        recipes += [curves(n_features, bandwidth, seed, intercept=False) for bandwidth in _BANDWIDTHS]
    return tuple(recipes)


def choose(
    logs: LoggedData,
    recipes: Sequence[Recipe | FeatureMap],
    ridges: Sequence[float],
    *,
    gamma: float,
    lookahead: int,
    folds: int,
    max_rows: int,
    seed: int,
) -> Choice:
    """The recipe and ridge with the best held-out score; see the module docstring.

    Args:
        logs: the log, of which at most about ``max_rows`` decisions of random users are used.
        recipes: the feature maps to compare; the first one is also the first reference.
        ridges: the ridges to compare.
        gamma: the discount.
        lookahead: lookahead of the LSTD that is to be fitted.
        folds: number of folds that the users are divided into.
        max_rows: approximate number of decisions to use.
        seed: random seed of the sample of users and of the folds.
    """
    draws = np.random.default_rng(seed)
    sample = map_sample(logs.contexts, draws)
    if len(recipes) * len(ridges) == 1 or len(logs) < _LEAST_ROWS:
        return Choice(features=fit_features(recipes[0], sample), ridge=ridges[len(ridges) // 2])
    some_logs = _some_users(logs, max_rows, draws)
    fold = _folds(some_logs, folds, draws)
    maps = [fit_features(recipe, sample) for recipe in recipes]
    windows = Windows.of(some_logs, gamma=gamma, lookahead=lookahead)
    tables = [_held_out(some_logs, features, ridges, windows, lookahead, fold) for features in maps]
    values = np.concatenate(tables)  # [recipes * ridges, n + trajectories]
    best = _select_by_score(some_logs, values, gamma, fold, first=len(ridges) // 2)
    return Choice(features=maps[best // len(ridges)], ridge=ridges[best % len(ridges)])


def map_sample(contexts: FloatArray, draws: np.random.Generator) -> FloatArray:
    """The contexts that a feature map is fitted to: all, or a random sample if there are many."""
    if len(contexts) <= _MAP_ROWS:
        return contexts
    return contexts[np.sort(draws.choice(len(contexts), size=_MAP_ROWS, replace=False))]


def _held_out(
    logs: LoggedData,
    features: FeatureMap,
    ridges: Sequence[float],
    windows: Windows,
    lookahead: int,
    fold: Int64Array,
) -> Float64Array:
    """V at all rows and all final contexts under fits without their fold, [ridges, n + trajectories]."""
    phi, ahead = (np.empty((len(logs), features.width + 1)) for _ in range(2))
    for block in feature_blocks(logs, features, windows, lookahead):
        phi[block.rows], ahead[block.rows] = block.phi, block.following
    finals = features_with_intercept(features, logs.final_contexts)
    last = fold[logs.offsets[1:] - 1]
    parts = [_sums(phi, ahead, windows, fold == f) for f in range(int(fold.max()) + 1)]
    whole = parts[0]
    for fold_sums in parts[1:]:
        whole = whole + fold_sums
    values = np.empty((len(ridges), len(phi) + len(finals)))
    for f, fold_sums in enumerate(parts):
        theta = np.stack([(whole - fold_sums).solve(ridge) for ridge in ridges])  # [ridges, p + 1]
        values[:, : len(phi)][:, fold == f] = theta @ phi[fold == f].T
        values[:, len(phi) :][:, last == f] = theta @ finals[last == f].T
    values[:, len(phi) :][:, logs.terminated] = 0.0
    return values


def _sums(phi: Float64Array, ahead: Float64Array, windows: Windows, fold: np.ndarray) -> LstdSums:
    rows = windows.usable & fold
    x, g = phi[rows], windows.returns[rows]
    return LstdSums(n=len(g), gram=x.T @ x, cross=x.T @ ahead[rows], target=x.T @ g, square=float(g @ g))


def _select_by_score(
    logs: LoggedData, values: Float64Array, gamma: float, fold: Int64Array, first: int
) -> int:
    """The winner's row in ``values`` [candidates, n + trajectories]; ``first`` is the first reference."""
    judge, n = Windows.of(logs, gamma=gamma, lookahead=_SCORE_HORIZON), len(logs)
    place = np.where(judge.stops == judge.ends, n + logs.trajectory_of_row, judge.stops)
    best = first
    for _ in range(_ROUNDS):
        target = judge.returns + judge.discounts * values[best][place]
        scores = np.zeros(len(values))
        for f in range(int(fold.max()) + 1):
            rows = np.flatnonzero(judge.usable & (fold == f))
            if len(rows):
                scores += np.var(target[rows] - values[:, rows], axis=1) * len(rows)
        best = int(scores.argmin())
    return best


def _some_users(logs: LoggedData, max_rows: int, draws: np.random.Generator) -> LoggedData:
    """Random users with about ``max_rows`` decisions in total; a longer trajectory is cut."""
    if len(logs) <= max_rows:
        return logs
    users = first_users(logs, draws.permutation(logs.n_users), max_rows)
    sample = logs.select(np.isin(logs.user_codes, users))
    return sample if len(sample) <= 2 * max_rows else cut(sample, np.arange(len(sample)) < max_rows)


def _folds(logs: LoggedData, folds: int, draws: np.random.Generator) -> Int64Array:
    """The fold of every decision [n]: by user, or by blocks of time where there are too few users."""
    if logs.n_users >= 2 * folds:
        return folds_of_users(logs.n_users, folds, draws)[logs.user_of_row]
    stretch = np.arange(len(logs)) * (4 * folds) // len(logs)
    return stretch % folds
