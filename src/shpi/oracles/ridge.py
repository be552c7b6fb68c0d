"""The default oracle: ridge regression in closed form, with coefficients shared by actions and per action.

    f(x, a) = phi(x)'(B psi_a + w_a)

See `shpi.oracles.hierarchy` for the equations. The feature matrix, the Gram matrices and their factors are
computed once; a new target costs one product Phi'y and one small solve.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from shpi._core.memory import require_memory
from shpi.errors import ConfigError
from shpi.features.base import FeatureMap, Recipe, fit_features
from shpi.features.chain import with_intercept
from shpi.features.defaults import curves, lines, may_curve
from shpi.features.fourier import RandomFourier
from shpi.oracles.base import (
    SCORE_BYTES,
    Targets,
    WeightKind,
    action_table,
    blocks,
    combined_weights,
    score_blocks,
    standardise_targets,
    unseen_actions,
)
from shpi.oracles.crossval import Choice, choose, deal_users
from shpi.oracles.hierarchy import Coupling, Solver, Spectrum
from shpi.oracles.statistics import GramStatistics, cross_moments, gram_statistics
from shpi.policies.scorers import LinearScorer, Scorer
from shpi.protocols import BoolArray, Float64Array, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

MANY_ACTIONS = 100  # with at least so many actions, action features are used if the log has them
ROWS_PER_FEATURE = 10  # with fewer rows per action and context feature, they are used as well
FEATURE_ROWS = 50_000  # evenly spaced rows that the default features are fitted on, about
MAX_COUPLED = 4096  # the largest number of shared coefficients, p (1 + m)
CURVED_STATISTICS = 1 << 28  # bytes of [A, p, p] up to which Fourier features are a default: 830 actions
WEIGHTINGS = 3  # number of row weightings whose factors are kept: all users, and both halves
COPIES = 5  # arrays [A, p, p] beside those of the folds: all rows, all but a fold, eigenvectors, products


@dataclass(frozen=True, kw_only=True)
class Ridge:
    """Hierarchical ridge regression of the advantages on (x, a).

    Args:
        features: recipe, fitted map, or several of them for ``tune`` to choose from. None: random
            Fourier features (and, for ``tune``, other bandwidths and linear features) for contexts of up to
            5 dimensions, linear ones beyond; all on standardised contexts. An intercept is added if the map
            has none.
        penalty: lambda, the penalty of each action's own coefficients, in decisions; infinity sets them to 0.
            None: chosen by ``tune`` (1 until then).
        shared_penalty: lambda_0, the penalty of the shared coefficients, in decisions. None: chosen by
            ``tune`` (0.1 until then).
        action_features: whether the shared part is bilinear in the context and the action features.
            ``auto``: if the log has them and there are 100 actions or more, or the median action has fewer
            than 10 rows per feature of the context.
        weights: ``none`` for the plain sum of Algorithm 2, ``mtr`` for 1 / (K mu(a|x)), as VW weighs rows.
        folds: number of folds of users in ``tune``.
        tune_rows: approximate number of rows that ``tune`` uses.
        penalties: values that ``tune`` tries for ``penalty``.
        shared_penalties: values that ``tune`` tries for ``shared_penalty``.
        cache_bytes: largest feature matrix to keep in memory (2 GiB). A larger one is computed anew, block by
            block, in every pass: bounded memory, at several times the cost of an iteration.
    """

    features: Recipe | FeatureMap | tuple[Recipe | FeatureMap, ...] | None = None
    penalty: float | None = None
    shared_penalty: float | None = None
    action_features: bool | Literal["auto"] = "auto"
    weights: WeightKind = "none"
    penalties: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
    shared_penalties: tuple[float, ...] = (0.01, 1.0)
    folds: int = 3
    tune_rows: int = 50_000
    cache_bytes: int = 1 << 31

    def __post_init__(self) -> None:
        if self.features == ():
            raise ConfigError(expected="at least one feature map to choose from", found="none")
        for name in ("penalty", "shared_penalty"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(expected=f"a positive {name}", found=str(value), where="Ridge")
        if self.folds < 2:
            raise ConfigError(expected="at least 2 folds", found=str(self.folds), where="Ridge")

    @classmethod
    def exact(cls, weights: WeightKind = "none") -> Ridge:
        """The least-squares minimiser over linear f(x, a), with just enough penalty to be unique.

        The coin-betting updates of the paper's oracle approach it with many passes. Unlike them, it does not
        depend on the order and the scale of the rows.
        """
        return cls(
            features=lines(), penalty=1e-6, shared_penalty=1e-6, action_features=False, weights=weights
        )

    def candidates(self, width: int, seed: int, n_actions: int = 1) -> tuple[Recipe | FeatureMap, ...]:
        """The feature maps to choose from; the first is used until ``tune`` is called.

        With many actions each has few rows, and the Gram matrices of Fourier features would fill the memory:
        the default is then linear.
        """
        if isinstance(self.features, tuple):
            return self.features
        if self.features is not None:
            return (self.features,)
        n_features = RandomFourier().n_features
        statistics = 8 * n_actions * (n_features + 1) ** 2  # bytes
        if not may_curve(width, "oracle") or statistics > CURVED_STATISTICS:
            return (lines(),)
        return (*(curves(n_features, bandwidth, seed) for bandwidth in (0.5, 1.0, 2.0, 0.25)), lines())

    def fit_candidate(self, index: int, logs: LoggedData, seed: int) -> FeatureMap:
        """Fit one of the candidates; the default ones need only about 50,000 rows."""
        recipe, contexts = self.candidates(logs.contexts.shape[1], seed, logs.n_actions)[index], logs.contexts
        if self.features is None:
            contexts = contexts[:: 1 + len(contexts) // FEATURE_ROWS]
        return with_intercept(fit_features(recipe, contexts))

    def prepare(self, logs: LoggedData, *, seed: int) -> PreparedRidge:
        """Fit the features and keep the feature matrix, if it is not too large."""
        features = self.fit_candidate(0, logs, seed)
        return PreparedRidge(
            config=self,
            logs=logs,
            features=features,
            psi=self._psi(logs, features.width),
            penalty=1.0 if self.penalty is None else self.penalty,
            shared_penalty=0.1 if self.shared_penalty is None else self.shared_penalty,
            seed=seed,
        )

    def _psi(self, logs: LoggedData, width: int) -> Float64Array:
        """psi_a [A, m] for every action: (1), or (1, features of a)."""
        ones, table = np.ones((logs.n_actions, 1)), action_table(logs)
        if self.action_features is False or table is None:
            if self.action_features is True:
                raise ConfigError(
                    expected="action features in the log",
                    found="none",
                    remedy="give logs.action_space features, or set action_features='auto'",
                )
            return ones
        rows = np.median(np.bincount(logs.actions, minlength=logs.n_actions))
        needed = logs.n_actions >= MANY_ACTIONS or rows < ROWS_PER_FEATURE * width
        size = width * (1 + table.shape[1])
        if self.action_features == "auto" and not (needed and size <= MAX_COUPLED):
            return ones
        if size > MAX_COUPLED:
            raise ConfigError(
                expected=f"at most {MAX_COUPLED} products of a context feature and an action feature",
                found=f"{size} = {width} x {1 + table.shape[1]}",
                remedy="use fewer context features or fewer action features",
            )
        return np.concatenate([ones, table], axis=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Factors:
    """The spectrum of the Gram matrices for one weighting of the rows, and the last solver made from it."""

    omega: Float64Array | None  # [n] weights of the rows; None: all 1
    spectrum: Spectrum
    solvers: dict[tuple[float, float], Solver] = field(default_factory=dict)  # by penalties


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedRidge:
    """A ridge prepared on a log. ``choice`` holds the result of ``tune``."""

    config: Ridge
    logs: LoggedData
    features: FeatureMap
    psi: Float64Array  # [A, m]
    penalty: float
    shared_penalty: float
    seed: int
    choice: Choice | None = None
    _memo: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        size = 8 * self.logs.n_actions * self.features.width**2 * (self.config.folds + COPIES)
        require_memory(
            size,
            f"Gram matrices of {self.logs.n_actions:,} actions and {self.features.width} features",
            "use fewer features, such as Chain((Standardise(), Identity())), or a larger machine",
        )

    @property
    def unseen(self) -> Int64Array:
        """The actions that the log never took; they get the shared part alone."""
        return unseen_actions(self.logs)

    def fit(
        self, targets: ArrayLike, weights: ArrayLike | None = None, valid: BoolArray | None = None
    ) -> LinearScorer:
        """The closed-form fit to these targets; factors of earlier calls with the same weights are reused."""
        scaled = self._scaled(targets, weights, valid)
        values = scaled.values if scaled.weights is None else scaled.values * scaled.weights
        cross = cross_moments(self.phi, self.features.width, self.logs.actions, self.logs.n_actions, values)
        beta = scaled.scale * self._solver(scaled.weights).solve(cross)
        beta[:, 0] += scaled.centre  # the intercept comes first in every map
        return LinearScorer(weights=beta, features=self.features)

    def tune(self, targets: ArrayLike, *, valid: BoolArray | None = None) -> PreparedRidge:
        """Choose the open settings by cross-validation over users on these targets."""
        config, logs = self.config, self.logs
        others = range(1, len(config.candidates(logs.contexts.shape[1], self.seed, logs.n_actions)))
        open_choices = len(others) > 0 or config.penalty is None or config.shared_penalty is None
        fold_of_row = deal_users(logs, config.folds, config.tune_rows, self.seed)
        if not open_choices or fold_of_row.max() < 1:
            return self
        maps = [self.features, *(config.fit_candidate(i, logs, self.seed) for i in others)]
        (choice,) = choose(
            maps,
            self.psi,
            logs,
            [self._scaled(targets, None, valid)],
            fold_of_row,
            config.penalties if config.penalty is None else (config.penalty,),
            config.shared_penalties if config.shared_penalty is None else (config.shared_penalty,),
        )
        memos: list[dict[str, Any]] = [self._memo, *({} for _ in others)]  # equal maps share a memo
        return replace(
            self,
            features=maps[choice.candidate],
            penalty=choice.penalty,
            shared_penalty=choice.shared_penalty,
            choice=choice,
            _memo=memos[choice.candidate],
        )

    def tune_each(
        self, targets: Sequence[ArrayLike], *, valid: BoolArray | None = None
    ) -> list[PreparedRidge]:
        """`tune` for each of several targets."""
        return [self.tune(each, valid=valid) for each in targets]

    def scores_on_log(self, scorer: Scorer) -> Iterator[tuple[slice, Float64Array]]:
        """Iterate over f(x_i, .) in blocks; a scorer of this oracle reuses the feature matrix."""
        if isinstance(scorer, LinearScorer) and scorer.features is self.features:
            columns = np.ascontiguousarray(scorer.weights.T)
            for rows in blocks(len(self.logs), self.logs.n_actions, SCORE_BYTES):
                yield rows, self.phi(rows) @ columns
        else:
            yield from score_blocks(scorer, self.logs.contexts)

    def statistics(self, weights: ArrayLike | None = None, valid: BoolArray | None = None) -> GramStatistics:
        """The Gram matrices of this log; those of shards add up to those of the whole."""
        omega = combined_weights(self.logs, self.config.weights, weights)
        if valid is not None:
            omega = np.where(valid, 1.0 if omega is None else omega, 0.0)
        return gram_statistics(self.phi, self.features.width, self.logs.actions, self.logs.n_actions, omega)

    def _scaled(self, targets: ArrayLike, weights: ArrayLike | None, valid: BoolArray | None) -> Targets:
        omega = combined_weights(self.logs, self.config.weights, weights)
        return standardise_targets(targets, len(self.logs), weights=omega, valid=valid)

    def _solver(self, omega: Float64Array | None) -> Solver:
        """The solver for these row weights and penalties; factors of recent calls are reused."""
        known: list[Factors] = self._memo.setdefault("factors", [])
        for mine in known:
            if mine.omega is omega or (
                mine.omega is not None and omega is not None and np.array_equal(mine.omega, omega)
            ):
                break
        else:
            width, actions, count = self.features.width, self.logs.actions, self.logs.n_actions
            grams = gram_statistics(self.phi, width, actions, count, omega)
            mine = Factors(omega=omega, spectrum=Spectrum.of(grams))
            known.append(mine)
            del known[:-WEIGHTINGS]
        key = (self.penalty, self.shared_penalty)
        if key not in mine.solvers:
            mine.solvers.clear()
            mine.solvers[key] = Coupling.of(mine.spectrum, self.psi, key[0]).solver(key[1])
        return mine.solvers[key]

    def phi(self, rows: slice) -> Float64Array:
        """Rows of the feature matrix [m, p]."""
        n, width = len(self.logs), self.features.width
        if 8 * n * width > self.config.cache_bytes:
            return self.features.transform(self.logs.contexts[rows])
        if "phi" not in self._memo:
            phi = np.empty((n, width))
            for block in blocks(n, width):
                phi[block] = self.features.transform(self.logs.contexts[block])
            self._memo["phi"] = phi
        cached: Float64Array = self._memo["phi"]
        return cached[rows]
