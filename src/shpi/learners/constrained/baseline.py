"""Shared by SPIBB, MBS and constrained SHPI: a baseline mu, the support of the log, the allowed policies.

    mu           the policy that the user passes, or a clone of the log
    support      n(x, a): how often a was taken in x; exact counts if contexts take few values,
                 otherwise the leverage of random Fourier features (`PseudoCounts`)
    policy       `SupportLimited`: greedy in f where n(x, a) is large enough; elsewhere it depends on the mode

The same rule is applied to many rows in every iteration, with mu and the support computed once: `limited`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shpi._core.softmax import row_max
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features import CellsMap, FeatureMap, Recipe
from shpi.features.base import fit_features
from shpi.features.cells import distinct
from shpi.features.defaults import curves
from shpi.learners.cloning import BehaviourCloning
from shpi.oracles import Oracle, Ridge
from shpi.oracles.statistics import gram_statistics
from shpi.policies import LinearScorer, PseudoCounts, SupportLimited
from shpi.policies.near_mu.cloned import ClonedPolicy
from shpi.policies.near_mu.support import Mode
from shpi.policies.scorers import Scorer
from shpi.protocols import BoolArray, Float32Array, Float64Array, FloatArray, Policy
from shpi.values import LSTD

FEW_CELLS = 256  # largest number of distinct contexts for which everything is a table
COUNT, PSEUDO_COUNT, DENSITY = 10.0, 100.0, 0.3  # default thresholds: exact count, pseudo-count, density
BLOCK = 20_000  # contexts at once
_TINY = 1e-6  # penalties that only make a solution unique


@dataclass(frozen=True, kw_only=True, eq=False)
class Constraint:
    """The allowed policies: between mu and greedy, as the support of the log permits."""

    mu: Policy
    support: Scorer  # n(x, a)
    threshold: float
    mode: Mode
    cells: CellsMap | None = None  # the contexts, where they are few

    def policy(self, scorer: Scorer) -> SupportLimited:
        """The allowed policy that is greediest in ``scorer``."""
        return SupportLimited(scorer, self.mu, self.support, self.threshold, self.mode)

    def on(self, contexts: FloatArray, candidates: BoolArray | None) -> Rows:
        """The constraint at some contexts, computed by blocks."""
        n, actions = len(contexts), self.mu.n_actions
        kept = np.empty((n, actions), dtype=np.float32)
        supported, free = np.empty((n, actions), dtype=bool), np.empty(n)
        for first in range(0, n, BLOCK):
            rows = slice(first, first + BLOCK)
            allowed = None if candidates is None else candidates[rows]
            kept[rows] = self.mu.action_probs(contexts[rows], allowed)
            known = self.support.scores(contexts[rows]) >= self.threshold
            supported[rows] = known if allowed is None else known & allowed
            some = supported[rows].any(axis=1)
            kept[rows][supported[rows] if self.mode == "spibb" else some] = 0.0
            left = 1.0 - kept[rows].sum(axis=1, dtype=np.float64)
            free[rows] = np.where(some, np.maximum(0.0, left), 0.0)
        return Rows(kept=kept, free=free, supported=supported)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """The constraint at some contexts: computed once, used with many scores."""

    kept: Float32Array  # [n, A] the probabilities that stay as mu has them
    free: Float64Array  # [n] what goes to the best supported action; 0 where none is
    supported: BoolArray  # [n, A]

    def blocks(self) -> Iterator[slice]:
        """The rows in order, in blocks."""
        for first in range(0, len(self.supported), BLOCK):
            yield slice(first, min(first + BLOCK, len(self.supported)))


def limited(scores: Float64Array, rows: Rows, block: slice) -> Float64Array:
    """The probabilities [m, A] of `SupportLimited` at some of the rows, from scores [m, A]."""
    probs = rows.kept[block].astype(np.float64)
    best = np.where(rows.supported[block], scores, -np.inf).argmax(axis=1)
    probs[np.arange(len(probs)), best] += rows.free[block]
    return probs


def limited_means(scores: Float64Array, rows: Rows, block: slice) -> Float64Array:
    """The mean score of that policy in each row [m], without the table of its probabilities."""
    free = rows.free[block]
    best = row_max(np.where(rows.supported[block], scores, -np.inf))[:, 0]
    means: Float64Array = np.vecdot(rows.kept[block], scores)
    return means + free * np.where(free > 0, best, 0.0)


# ---------------------------------------------------------------------- from a log


def constrain(
    logs: LoggedData,
    *,
    mode: Mode,
    threshold: float | None,
    baseline: Policy | None,
    features: Recipe | FeatureMap | None,
    seed: int,
) -> Constraint:
    """The constraint of a log.

    Args:
        logs: the log.
        mode: "spibb" or "mbs".
        threshold: a count for "spibb" (None: 10 of an exact count, 100 of a pseudo-count, to which neighbours
            contribute); for "mbs" a density, as a multiple of that of a log that is spread evenly over
            features and actions (None: 0.3).
        baseline: mu, if you have it.
        features: features of the pseudo-counts; None for exact counts where contexts take at most 256 values,
            and random Fourier features elsewhere.
        seed: random seed of the features and of the clone.
    """
    if baseline is not None and baseline.n_actions != logs.n_actions:
        raise ConfigError(
            expected=f"a baseline over the log's {logs.n_actions} actions",
            found=f"one over {baseline.n_actions}",
        )
    values = distinct(logs.contexts, FEW_CELLS) if features is None else None
    if values is not None:
        cells = CellsMap(cells=values)
        counts = _sums(logs, cells, np.ones(len(logs)))
        mu = baseline or table_behaviour(logs, cells)
        support: Scorer = LinearScorer(counts, cells)
        width = cells.width
    else:
        cells, mu = None, baseline or BehaviourCloning(seed=seed).fit(logs)
        support = pseudo_counts(logs, features or _smooth(seed))
        width = support.features.width
    if mode == "mbs":
        share = DENSITY if threshold is None else threshold
        least = share * len(logs) / (width * logs.n_actions)
    elif threshold is None:
        least = PSEUDO_COUNT if cells is None else COUNT
    else:
        least = threshold
    # A pseudo-count comes from an inverse matrix, and misses a whole number by rounding.
    return Constraint(mu=mu, support=support, threshold=least * (1 - 1e-9), mode=mode, cells=cells)


def table_behaviour(logs: LoggedData, cells: CellsMap) -> ClonedPolicy:
    """The probabilities of mu in each cell, from the best information in the log.

    If the log has whole distributions, they are used. If it has propensities, it gives mu(a|x) exactly for
    every action taken in x; the actions taken only elsewhere share the rest of 1. Otherwise frequencies are
    used.
    """
    counts = _sums(logs, cells, np.ones(len(logs)))  # [A, S]
    tried = np.bincount(logs.actions, minlength=logs.n_actions) > 0
    if logs.behaviour is not None:
        table = np.zeros_like(counts.T)
        np.add.at(table, cells.index(logs.contexts), logs.behaviour)
        return ClonedPolicy(table.T / counts.sum(axis=0), cells, tried | (table.max(axis=0) > 0))
    if logs.propensities is None or logs.propensity_mode != "logged":
        return ClonedPolicy(counts / counts.sum(axis=0), cells, tried)
    taken = counts > 0
    mean = np.where(taken, _sums(logs, cells, logs.propensities) / np.maximum(counts, 1.0), 0.0)
    others = np.logical_and(~taken, tried[:, None])
    left = np.maximum(1.0 - mean.sum(axis=0), 0.0) / np.maximum(others.sum(axis=0), 1)
    return ClonedPolicy(mean + left * others, cells, tried)


def _sums(logs: LoggedData, cells: CellsMap, values: Float64Array) -> Float64Array:
    """The sum of ``values`` [n] over the decisions of each action and cell, [A, S]."""
    total = np.zeros((logs.n_actions, cells.width))
    np.add.at(total, (logs.actions, cells.index(logs.contexts)), values)
    return total


def pseudo_counts(logs: LoggedData, features: Recipe | FeatureMap, ridge: float = 1.0) -> PseudoCounts:
    """`PseudoCounts` of a log, by blocks of rows."""
    phi = fit_features(features, logs.contexts[:: 1 + len(logs) // 50_000])
    grams = gram_statistics(
        lambda rows: phi.transform(logs.contexts[rows]), phi.width, logs.actions, logs.n_actions
    ).grams
    inverses = np.linalg.inv(grams + ridge * np.eye(phi.width)).astype(np.float64, copy=False)
    return PseudoCounts(inverses, phi, ridge)


def table_oracle(constraint: Constraint) -> Oracle | None:
    """A mean per (x, a), where contexts are few; None elsewhere."""
    if constraint.cells is None:
        return None
    return Ridge(features=constraint.cells, penalty=_TINY, shared_penalty=_TINY, action_features=False)


def table_value(constraint: Constraint) -> LSTD:
    """LSTD over the cells, where contexts are few, and with features of its own choice elsewhere."""
    return LSTD() if constraint.cells is None else LSTD(features=constraint.cells, ridge=_TINY)


def _smooth(seed: int) -> Recipe:
    """A narrow kernel, so that only near neighbours count."""
    return curves(100, 0.1, seed, intercept=False)
