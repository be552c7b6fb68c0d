"""Choose the features and the two penalties of a ridge by cross-validation over users, from sums alone.

The squared error on a held-out fold needs no pass over its rows, once the fold's sums are known:

    sum_i omega_i (y_i - phi_i'beta_{a_i})^2
        = sum_i omega_i y_i^2 - 2 sum_a beta_a'c_a + sum_a beta_a'G_a beta_a

The Gram matrices and their factors do not depend on the targets, so tuning for several targets costs little
more than for one. Folds consist of whole users, because decisions of one user are correlated. Penalties are
in units of decisions, and the best ones do not depend on the size of the log, so a sample of users is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from shpi.data._log.users import first_users, time_blocks
from shpi.features.base import FeatureMap
from shpi.oracles.base import Targets
from shpi.oracles.hierarchy import Coupling, Spectrum
from shpi.oracles.statistics import GramStatistics, cross_moments, gram_statistics
from shpi.protocols import Float64Array, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData


@dataclass(frozen=True, kw_only=True, eq=False)
class Fold:
    """The sums of one fold's rows, for T targets."""

    grams: GramStatistics
    cross: Float64Array  # [T, A, p]
    squares: Float64Array  # [T]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The feature map and penalties with the smallest held-out error."""

    candidate: int  # index of the feature map
    penalty: float
    shared_penalty: float
    error: float  # held-out squared error, as a share of the targets' variance


def deal_users(logs: LoggedData, folds: int, max_rows: int, seed: int) -> Int64Array:
    """The fold of every row [n]; -1 for rows outside a sample of users with about ``max_rows`` rows.

    The rows of a single user are cut into blocks of time.
    """
    n, users = len(logs), logs.n_users
    if users < 2:
        return time_blocks(n, folds)
    order = np.random.default_rng(seed).permutation(users)
    sample = first_users(logs, order, max_rows, least=min(folds, users))
    fold_of_user = np.full(users, -1, dtype=np.int64)
    fold_of_user[sample] = np.arange(len(sample)) % folds
    return fold_of_user[logs.user_of_row]


def fold_sums(
    features: FeatureMap, logs: LoggedData, targets: Sequence[Targets], fold_of_row: Int64Array
) -> list[Fold]:
    """The sums of every fold, over the sample's rows only. All targets must have the same weights."""
    sums = []
    for fold in range(int(fold_of_row.max()) + 1):
        rows = np.flatnonzero(fold_of_row == fold)
        phi, actions, size = features.transform(logs.contexts[rows]), logs.actions[rows], logs.n_actions
        omega = None if targets[0].weights is None else targets[0].weights[rows]
        ys = [target.values[rows] for target in targets]
        weighted = [y if omega is None else omega * y for y in ys]
        cross = [cross_moments(phi.__getitem__, features.width, actions, size, y) for y in weighted]
        sums.append(
            Fold(
                grams=gram_statistics(phi.__getitem__, features.width, actions, size, omega),
                cross=np.stack(cross),
                squares=np.array([float(w @ y) for w, y in zip(weighted, ys, strict=True)]),
            )
        )
    return sums


def held_out_errors(
    folds: Sequence[Fold], psi: Float64Array, penalties: Sequence[float], shared: Sequence[float]
) -> Float64Array:
    """Held-out squared errors, summed over all folds [T, penalties, shared penalties]."""
    errors = np.zeros((len(folds[0].cross), len(penalties), len(shared)))
    total, cross = reduce(add, (fold.grams for fold in folds)), sum(fold.cross for fold in folds)
    for fold in folds:
        spectrum = Spectrum.of(total - fold.grams)
        for i, penalty in enumerate(penalties):
            coupling = Coupling.of(spectrum, psi, penalty)
            for j, shared_penalty in enumerate(shared):
                solver = coupling.solver(shared_penalty)
                betas = np.stack(
                    [solver.solve(columns) for columns in np.asarray(cross - fold.cross)], axis=2
                )
                fitted = np.matmul(fold.grams.grams, betas)  # [A, p, T]
                errors[:, i, j] += fold.squares + (betas * fitted).sum(axis=(0, 1))
                errors[:, i, j] -= 2.0 * (betas * fold.cross.transpose(1, 2, 0)).sum(axis=(0, 1))
    return errors


def choose(
    candidates: Sequence[FeatureMap],
    psi: Float64Array,
    logs: LoggedData,
    targets: Sequence[Targets],
    fold_of_row: Int64Array,
    penalties: Sequence[float],
    shared: Sequence[float],
) -> list[Choice]:
    """Try every feature map with every pair of penalties; return the best for each target."""
    tables = []  # errors [T, penalties, shared penalties] of each candidate
    for features in candidates:
        folds = fold_sums(features, logs, targets, fold_of_row)
        squares = np.maximum(sum(fold.squares for fold in folds), 1e-300)
        tables.append(held_out_errors(folds, psi, penalties, shared) / squares[:, None, None])
    choices = []
    for errors in np.stack(tables, axis=1):  # for each target: [candidates, penalties, shared penalties]
        index, i, j = (int(place) for place in np.unravel_index(int(errors.argmin()), errors.shape))
        choices.append(
            Choice(
                candidate=index,
                penalty=penalties[i],
                shared_penalty=shared[j],
                error=float(errors[index, i, j]),
            )
        )
    return choices
