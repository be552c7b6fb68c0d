"""Additive tables: a world model's fit to one outcome, fast to evaluate and the same in any batch.

Every column is cut into bins. Each bin has a parameter, as has each action, and each bin under an action:

    eta(x, a) = b + sum_j f_j(x_j) + g(a) + sum_j g_j(x_j, a)
    P(y = 1 | x, a) = 1 / (1 + exp(-eta))        for outcomes in {0, 1}
    E[y | x, a]     = eta                        for others

The parameters minimise the negative log-likelihood (half the squared error) plus lambda/2 of their squares.
On KuaiRand these tables come within 0.007 AUC of boosted trees, need no other package and are faster to
evaluate (docs/world-model.md). A row's terms are added one after the other, never by a matrix product, whose
rounding depends on the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from shpi._core.ranks import mid_ranks
from shpi.errors import ConfigError
from shpi.features.parts import freeze, saveable
from shpi.protocols import Float64Array, FloatArray, Int64Array, IntArray

Codes = NDArray[np.int16]  # [n, p] the bin of each column

LEVELS = 64  # largest number of distinct values for which each has a bin of its own
_STEPS = 80  # steps of the optimiser for the fit to all users
_MEMBER_STEPS = 15  # steps for each member of the ensemble, which starts at the fit to all users
_SMALL = 0.5  # pseudo-counts added to both outcomes for the initial intercept, so that its logit is finite


@saveable("envs/world-bins")
@dataclass(frozen=True, kw_only=True, eq=False)
class Bins:
    """The bins of each column: bin i of column j is edges[i-1] < x_j <= edges[i] of its own edges."""

    edges: Float64Array  # the edges of all columns, one column after the other
    offsets: Int64Array  # [p + 1]

    def __post_init__(self) -> None:
        freeze(self, "edges", ndim=1)
        freeze(self, "offsets", ndim=1, dtype=np.int64)

    @classmethod
    def fit(cls, columns: FloatArray, bins: int) -> Bins:
        """One bin per value if there are few, else about ``bins`` bins with equally many rows."""
        cuts = [_cuts(column, bins) for column in columns.T]
        offsets = np.cumsum([0, *(len(cut) for cut in cuts)])
        return cls(edges=np.concatenate([np.empty(0), *cuts]), offsets=offsets)

    @property
    def width(self) -> int:
        """p, the number of columns."""
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> Int64Array:
        """The number of bins of each column, [p]."""
        return np.diff(self.offsets) + 1

    def levels(self, columns: FloatArray, codes: Codes) -> tuple[Float64Array, Float64Array]:
        """The mean of each column in each of its bins, and the mean of each column: flat, and [p]."""
        means = []
        for j, size in enumerate(self.sizes):
            count = np.maximum(np.bincount(codes[:, j], minlength=size), 1)
            means.append(np.bincount(codes[:, j], weights=columns[:, j], minlength=size) / count)
        flat = np.concatenate(means) if means else np.empty(0)
        return flat, np.asarray(columns, dtype=np.float64).mean(axis=0)

    def code(self, columns: FloatArray, only: IntArray | None = None, out: Codes | None = None) -> Codes:
        """The bins [n, p] of the columns, or of those in ``only``; the others stay as they are in ``out``."""
        codes = np.zeros(columns.shape, dtype=np.int16) if out is None else out
        for j in range(self.width) if only is None else only:
            edges = self.edges[self.offsets[j] : self.offsets[j + 1]]
            if len(edges):
                codes[:, j] = np.searchsorted(edges, columns[:, j])
        return codes


def _cuts(column: FloatArray, bins: int) -> Float64Array:
    values, counts = np.unique(np.asarray(column, dtype=np.float64), return_counts=True)
    between = (values[1:] + values[:-1]) / 2
    if len(values) <= LEVELS:
        return between
    share = np.cumsum(counts)[:-1] / counts.sum()  # share of the rows below each cut
    place = np.searchsorted(share, np.arange(1, bins) / bins)
    chosen: Float64Array = between[np.unique(np.minimum(place, len(between) - 1))]
    return chosen


class Term(NamedTuple):
    """One table of the sum: its column (-1: none), whether it depends on the action, its position."""

    column: int
    by_action: bool
    start: int
    size: int


@saveable("envs/world-tables")
@dataclass(frozen=True, kw_only=True, eq=False)
class Tables:
    """The fitted parameters: row 0 is the fit to all users, rows 1 .. B are the members of the ensemble."""

    sizes: Int64Array  # [p] the bins of each column
    crossed: Int64Array  # [c] the columns that interact with the action
    n_actions: int  # 0: the outcome does not depend on the action
    binary: bool
    numbers: Float64Array  # [1 + B, P], the intercept first

    def __post_init__(self) -> None:
        freeze(self, "sizes", "crossed", ndim=1, dtype=np.int64)
        freeze(self, "numbers", ndim=2)

    @property
    def members(self) -> int:
        """B, the size of the ensemble."""
        return len(self.numbers) - 1

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The tables in the order in which they are added up."""
        return tuple(_layout(self.sizes, self.crossed, self.n_actions))

    def eta(
        self,
        codes: Codes,
        actions: IntArray | None = None,
        members: IntArray | int = 0,
        terms: Sequence[Term] | None = None,
        start: Float64Array | None = None,
    ) -> Float64Array:
        """The sum [n], or ``start`` plus the given terms; ``members``: rows of the parameters, one or [n]."""
        flat, width = self.numbers.reshape(-1), self.numbers.shape[1]
        row = np.asarray(members, dtype=np.int64) * width
        total = np.zeros(len(codes)) + flat[row] if start is None else start.copy()
        for term in self.terms if terms is None else terms:
            total += flat[row + (term.start + _place(term, self.sizes, codes, actions))]
        return total

    def mean(self, eta: Float64Array) -> Float64Array:
        """E[y] for a given eta."""
        return sigmoid(eta) if self.binary else eta

    def scaled(self, columns: IntArray, factor: float) -> Tables:
        """The tables with every term that involves one of the columns multiplied by ``factor``.

        `fit_tables` centres each table over the rows of the fit, so the mean of eta there does not change.
        """
        touched = set(np.asarray(columns).tolist())
        numbers = self.numbers.copy()
        for term in self.terms:
            if term.column in touched:
                numbers[:, term.start : term.start + term.size] *= factor
        return replace(self, numbers=numbers)

    def raised(self, column: int, amounts: Float64Array) -> Tables:
        """The tables with ``amounts``, one per bin, added to the table of a column."""
        numbers = self.numbers.copy()
        for term in self.terms:
            if term.column == column and not term.by_action:
                numbers[:, term.start : term.start + term.size] += amounts
        return replace(self, numbers=numbers)


def sigmoid(eta: Float64Array) -> Float64Array:
    """1 / (1 + exp(-eta)), without overflow."""
    return 1.0 / (1.0 + np.exp(-np.clip(eta, -700.0, 700.0)))


def _layout(sizes: IntArray, crossed: IntArray, n_actions: int) -> Iterator[Term]:
    start = 1  # parameter 0 is the intercept
    wanted = [(j, False) for j in range(len(sizes)) if sizes[j] > 1]
    if n_actions:
        wanted += [(-1, True), *((int(j), True) for j in crossed)]
    for column, by_action in wanted:
        size = (int(sizes[column]) if column >= 0 else 1) * (n_actions if by_action else 1)
        yield Term(column, by_action, start, size)
        start += size


def _place(term: Term, sizes: Int64Array, codes: Codes, actions: IntArray | None) -> Int64Array:
    """The position of each row in the term's table, [n]."""
    if not term.by_action:
        return codes[:, term.column].astype(np.int64)
    if actions is None:
        raise ConfigError(expected="actions, which this outcome depends on", found="none")
    place = np.asarray(actions, dtype=np.int64)
    return place if term.column < 0 else place * sizes[term.column] + codes[:, term.column]


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """lambda of each kind of table: a column, the action, a column under an action."""

    column: float = 8.0
    action: float = 8.0
    crossed: float = 16.0

    def of(self, term: Term) -> float:
        """The lambda of one table."""
        if not term.by_action:
            return self.column
        return self.action if term.column < 0 else self.crossed


def fit_tables(
    sizes: Int64Array,
    codes: Codes,
    target: Float64Array,
    *,
    binary: bool,
    actions: IntArray | None = None,
    n_actions: int = 0,
    crossed: Sequence[int] = (),
    weights: Float64Array | None = None,
    offset: Float64Array | None = None,
    penalty: Penalty | None = None,
) -> Tables:
    """Fit the tables to a target [n], once for all rows and once for each row of ``weights`` [B, n].

    ``offset`` is a known part of eta, for example action effects that were estimated elsewhere: [n], or
    [1 + B, n] if it differs between the members.
    """
    columns = np.array(crossed, dtype=np.int64)
    terms = list(_layout(sizes, columns, n_actions))
    scale = 1.0 if binary else max(float(target.std()), 1e-12)
    samples = np.empty((0, len(target))) if weights is None else weights
    known = np.zeros(len(target)) if offset is None else offset / scale
    known = np.broadcast_to(known, (len(samples) + 1, len(target)))
    problem = _Problem.of(terms, sizes, codes, actions, target / scale, binary, penalty or Penalty())
    fits = [problem.solve(np.ones(len(target)), known[0], problem.start(known[0]), _STEPS)]
    fits += [problem.solve(*row, fits[0], _MEMBER_STEPS) for row in zip(samples, known[1:], strict=True)]
    numbers = np.stack([problem.centred(row, terms) for row in fits]) * scale
    return Tables(sizes=sizes, crossed=columns, n_actions=n_actions, binary=binary, numbers=numbers)


@dataclass(frozen=True, eq=False)
class _Problem:
    """The penalised likelihood as a sparse problem: a row has a one for each of its terms."""

    design: Any  # csr [n, P]
    transposed: Any  # csr [P, n]
    target: Float64Array  # [n]
    ridge: Float64Array  # [P]
    binary: bool
    counts: Float64Array  # [P] rows in each bin

    @classmethod
    def of(
        cls,
        terms: Sequence[Term],
        sizes: Int64Array,
        codes: Codes,
        actions: IntArray | None,
        target: Float64Array,
        binary: bool,
        penalty: Penalty,
    ) -> _Problem:
        n = len(target)
        places = np.empty((n, len(terms) + 1), dtype=np.int32)
        places[:, 0] = 0
        for k, term in enumerate(terms):
            places[:, k + 1] = term.start + _place(term, sizes, codes, actions)
        width = terms[-1].start + terms[-1].size if terms else 1
        ends = np.arange(0, places.size + 1, places.shape[1], dtype=np.int64)
        design = csr_matrix((np.ones(places.size), places.reshape(-1), ends), shape=(n, width))
        ridge = np.zeros(width)
        for term in terms:
            ridge[term.start : term.start + term.size] = penalty.of(term)
        return cls(
            design=design,
            transposed=design.T.tocsr(),
            target=target,
            ridge=ridge,
            binary=binary,
            counts=np.bincount(places.reshape(-1), minlength=width).astype(np.float64),
        )

    def start(self, offset: Float64Array) -> Float64Array:
        numbers = np.zeros(len(self.ridge))
        if self.binary:
            ones = self.target.sum() + _SMALL
            numbers[0] = np.log(ones / (len(self.target) + 2 * _SMALL - ones)) - offset.mean()
        else:
            numbers[0] = (self.target - offset).mean()
        return numbers

    def solve(
        self, weights: Float64Array, offset: Float64Array, start: Float64Array, steps: int
    ) -> Float64Array:
        """L-BFGS on parameters scaled by the root of their curvature, so that one step length suits all."""
        spread = self.target.mean() * (1 - self.target.mean()) if self.binary else 1.0
        scale = 1.0 / np.sqrt(self.counts * max(spread, 1e-3) + self.ridge + 1e-9)

        def loss(scaled: Float64Array) -> tuple[float, Float64Array]:
            numbers = scaled * scale
            eta = self.design @ numbers + offset
            if self.binary:
                error = sigmoid(eta) - self.target
                value = weights @ (np.logaddexp(0.0, eta) - self.target * eta)
            else:
                error = eta - self.target
                value = 0.5 * (weights @ np.square(error))
            shrunk = self.ridge * numbers
            gradient = self.transposed @ (weights * error) + shrunk
            return float(value + 0.5 * (shrunk @ numbers)), gradient * scale

        options = {"maxiter": steps, "ftol": 1e-6, "gtol": 1e-6}
        solution = minimize(loss, start / scale, jac=True, method="L-BFGS-B", options=options)
        numbers: Float64Array = solution.x * scale
        return numbers

    def centred(self, numbers: Float64Array, terms: Sequence[Term]) -> Float64Array:
        """Shift each table to mean 0 over the rows, and the intercept accordingly."""
        moved = numbers.copy()
        for term in terms:
            own = slice(term.start, term.start + term.size)
            mean = float(self.counts[own] @ moved[own]) / len(self.target)
            moved[own] -= mean
            moved[0] += mean
        return moved


def bootstrap_weights(users: Int64Array, members: int, rng: np.random.Generator) -> Float64Array:
    """The weight of each row in each member [B, n]: users are drawn with replacement."""
    total = int(users.max()) + 1
    draws = [np.bincount(rng.integers(0, total, total), minlength=total) for _ in range(members)]
    return np.array(draws, dtype=np.float64).reshape(members, total)[:, users]


def auc(target: Float64Array, score: Float64Array) -> float:
    """P(a random 1 has a greater score than a random 0); 1/2 if there is only one class."""
    ones = target > 0.5
    positives, negatives = int(ones.sum()), int((~ones).sum())
    if not positives or not negatives:
        return 0.5
    ranks = mid_ranks(score)[ones].sum()
    return float((ranks - positives * (positives + 1) / 2) / (positives * negatives))
