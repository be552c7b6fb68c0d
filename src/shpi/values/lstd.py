r"""LSTD: the value in closed form, over a feature map, additive over shards.

    V(x) = (1, phi(x))' theta,     theta = (gram - cross + penalty)^-1 target

It is the fixed point V = Pi T^L V, where T is the Bellman backup of the logging policy, L the lookahead and
Pi the (ridge) regression on the features; `shpi.values._lstd.moments` has the sums. Unlike the Bellman
residual it is not biased by the noise of x'. Scaling the rewards scales V and nothing else.

The lookahead. L = 1 is the classic LSTD, exact where the context is the whole state. It never is: users
remember what the context does not show, so x_{t+1} given x_t says little about the far future, and the error
of one step is repeated 1 / (1 - gamma) times. With L steps of real rewards it is repeated L times less often,
at the cost of more variance; a long L is Monte Carlo. `python -m benchmarks ablation` has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import numpy as np

from shpi._core.executors import Executor
from shpi.data._log.cut import add_counts, cut_counts, taken_given, with_cut
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.errors import ConfigError, DataError
from shpi.features import FeatureMap, Recipe
from shpi.features.base import as_matrix
from shpi.features.parts import freeze, saveable
from shpi.passes import add_up, sample
from shpi.protocols import Float64Array, FloatArray, Int64Array
from shpi.values._lstd.choose import RIDGES, Choice, choose, default_recipes
from shpi.values._lstd.moments import LstdSums, block_rows
from shpi.values.base import checked_gamma
from shpi.values.levels import on_level

CHOICE_DECISIONS = 500_000  # decisions in the sample on which features and ridge are chosen


@saveable("values/linear")
@dataclass(frozen=True, kw_only=True, eq=False)
class LinearValue:
    """V(x) = theta_0 + theta_1 phi_1(x) + …."""

    features: FeatureMap
    theta: Float64Array  # [p + 1]

    def __post_init__(self) -> None:
        freeze(self, "theta", ndim=1)
        if len(self.theta) != self.features.width + 1:
            raise ConfigError(
                expected=f"{self.features.width + 1} coefficients", found=str(len(self.theta)), where="theta"
            )

    @property
    def width(self) -> int:
        """The width d of a context."""
        return self.features.width_in

    def __call__(self, contexts: FloatArray) -> Float64Array:
        """Values [n]."""
        x = as_matrix(contexts, self.width)
        values, size = np.empty(len(x)), block_rows(self.features.width)
        for i in range(0, len(x), size):
            values[i : i + size] = self.features.transform(x[i : i + size]) @ self.theta[1:]
        values += self.theta[0]
        return values


@dataclass(frozen=True, kw_only=True)
class LSTD:
    """Least-squares temporal differences.

    Args:
        features: a recipe or a fitted map; None chooses among linear, quadratic and spline features, and up
            to 6 dimensions random Fourier features of several bandwidths, by cross-validation.
        ridge: the weight of the prior V = constant, counted in decisions; None chooses by cross-validation.
            The intercept, which is added to the features, is never penalised.
        level: "user" lets V depend on user-level dimensions only (the paper's c(x_u)); None uses all.
        lookahead: number L of steps of observed rewards before V is bootstrapped.
        n_features: number of random Fourier features.
        tail: standard deviations at which the powers among the features are clipped, so that one user's
            counts cannot dominate V; None clips nothing.
        folds: number of folds of the cross-validation, over users.
        choice_rows: number of decisions that the cross-validation uses.
    """

    features: Recipe | FeatureMap | None = None
    ridge: float | None = None
    level: Literal["user"] | None = None
    lookahead: int = 20
    n_features: int = 200
    tail: float | None = None
    folds: int = 3
    choice_rows: int = 20_000

    def __post_init__(self) -> None:
        if self.ridge is not None and not (np.isfinite(self.ridge) and self.ridge >= 0):
            raise ConfigError(expected="a ridge of at least 0, or None", found=str(self.ridge), where="LSTD")
        if self.folds < 2 or self.choice_rows < 1 or self.lookahead < 1:
            raise ConfigError(
                expected="folds >= 2, choice_rows >= 1 and lookahead >= 1",
                found=f"{self.folds}, {self.choice_rows}, {self.lookahead}",
            )

    def fit(
        self, logs: LoggedData | ShardedLog, *, gamma: float, seed: int, executor: Executor | None = None
    ) -> LinearValue:
        """Choose on a sample, sum over all shards and solve; a log in memory is one shard.

        Args:
            logs: the log.
            gamma: the discount.
            seed: random seed of the sample and of what is chosen on it.
            executor: runs the passes over shards; None is this process.
        """
        some_users = sample(logs, CHOICE_DECISIONS, seed=seed, executor=executor)
        choice = self.choose(some_users, gamma=gamma, seed=seed)
        if isinstance(logs, LoggedData):
            return solve([self.sums(logs, choice, gamma=gamma)], choice)
        counts = add_up(logs, cut_counts, executor=executor, add=add_counts)
        of_shard = _ShardSums(model=self, choice=choice, gamma=gamma, cut=counts)
        return solve([add_up(logs, of_shard, executor=executor)], choice)

    def sums(self, shard: LoggedData, choice: Choice, *, gamma: float) -> LstdSums:
        """The sums of one shard."""
        return LstdSums.of(shard, choice.features, gamma=gamma, lookahead=self.lookahead)

    def choose(self, logs: LoggedData, *, gamma: float, seed: int) -> Choice:
        """Choose the features and the ridge, which all shards must share.

        Args:
            logs: a log, or a sample of its users.
            gamma: the discount.
            seed: random seed of the cross-validation.
        """
        checked_gamma(gamma)
        user = None if self.level is None else on_level(logs, self.level)
        width = logs.contexts.shape[1] if user is None else user.width
        first, second = (int(s.generate_state(1)[0]) for s in np.random.SeedSequence(seed).spawn(2))
        recipes: Sequence[Recipe | FeatureMap] = (
            default_recipes(width, self.n_features, first, self.tail)
            if self.features is None
            else (self.features,)
        )
        return choose(
            logs,
            recipes if user is None else [user.then(recipe) for recipe in recipes],
            RIDGES if self.ridge is None else (self.ridge,),
            gamma=gamma,
            lookahead=self.lookahead,
            folds=self.folds,
            max_rows=self.choice_rows,
            seed=second,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _ShardSums:
    """The sums of a shard, with the cut trajectories that the whole log determines; picklable."""

    model: LSTD
    choice: Choice
    gamma: float
    cut: Int64Array  # [2, T]

    def __call__(self, shard: LoggedData) -> LstdSums:
        whole = with_cut(shard, taken_given(shard, self.cut))
        return self.model.sums(whole, self.choice, gamma=self.gamma)


def solve(shards: Sequence[LstdSums], choice: Choice) -> LinearValue:
    """Solve for V, given the sums of all shards."""
    sums = reduce(LstdSums.__add__, shards)
    if sums.n == 0:
        raise DataError(
            expected="at least one decision whose reward and next context are known",
            found="none",
            remedy="log the context after the last decision, or mark trajectories as terminated",
        )
    return LinearValue(features=choice.features, theta=sums.solve(choice.ridge))
