r"""Fitted Q evaluation with any regression oracle, such as boosted trees or a network, after linear backups.

    Q_{h+1} = oracle regression of  r + gamma V_h(x')  on (x, a),     V_h(x) = sum_a pi(a|x) Q_h(x, a)

for the last ``backups`` of the H backups; the earlier ones are linear (`shpi.ope.models.backups`). So the
oracle captures nonlinear effects of the next few decisions, and the distant future stays cheap. There is no
formula for the noise of an arbitrary oracle. The influences are those of the linear FQE, scaled up if a
jackknife over folds of users gives a larger error. So use this estimator beside the linear FQE, not instead
of it. It needs the log in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.ope.estimators.base import finish
from shpi.ope.estimators.direct import FQE
from shpi.ope.inference.intervals import standard_error
from shpi.ope.models.backups import fit_backups
from shpi.ope.models.predictions import value_limits
from shpi.ope.models.recipes import designed
from shpi.ope.problem import Chunk, Problem
from shpi.ope.results import Estimate
from shpi.oracles import Gbdt, Oracle
from shpi.policies.scorers import Scorer
from shpi.protocols import Float64Array


@dataclass(frozen=True, kw_only=True)
class OracleFQE:
    """FQE whose last backups use an oracle.

    Args:
        oracle: `shpi.oracles.Gbdt` (extra ``gbdt``), `Mlp` (extra ``neural``), or any other oracle.
        backups: number of backups that use the oracle.
        name: name of the estimator.
    """

    oracle: Oracle = field(default_factory=Gbdt)
    backups: int = 5
    name: str = "FQE (oracle)"

    def __post_init__(self) -> None:
        if self.backups < 1:
            raise ConfigError(expected="at least one backup", found=str(self.backups), where="OracleFQE")

    def estimate(self, problem: Problem) -> Estimate:
        """See the top of this file."""
        if not isinstance(problem.source, LoggedData):
            raise ConfigError(
                expected="a log in memory",
                found=type(problem.source).__name__,
                remedy="use FQE, which passes over shards",
            )
        chunk, folds = next(problem.chunks()), problem.settings.folds
        logs, fold = chunk.logs, chunk.fold_of_user
        values = self._start_values(problem, chunk, None)  # [N]
        value = float(values.sum()) / problem.users
        without = np.empty(folds)
        for k in range(folds):
            left = self._start_values(problem, chunk, k)
            without[k] = left[fold[logs.user_codes] != k].sum() / (fold != k).sum()
        error = float(np.sqrt((folds - 1) / folds * np.sum((without - without.mean()) ** 2)))
        linear = FQE().model(problem, "pi").influence
        spread = standard_error(linear)
        factor = max(1.0, error / spread) if spread > 0 else 1.0
        notes = ["influences of the linear FQE"]
        if factor > 1:
            notes.append(f"enlarged {factor:.2g} times, as leaving out a group of users suggests")
        return finish(self.name, problem, value, factor * linear, None, tuple(notes))

    def _start_values(self, problem: Problem, chunk: Chunk, fold: int | None) -> Float64Array:
        """V_H at the first contexts [N], from fits without one fold; None: with all folds."""
        count = min(self.backups, problem.horizon)
        values, final = _linear_values(problem, chunk, fold, problem.horizon - count)
        prepared = self.oracle.prepare(chunk.logs, seed=problem.settings.seed)
        known = problem.known_weights(chunk, "next") if problem.horizon > 1 else np.ones(len(chunk.logs))
        valid = (known > 0) & chunk.observed & (chunk.fold != (-1 if fold is None else fold))
        for _ in range(count):
            ahead = np.append(values[1:], 0.0)
            ahead[chunk.logs.offsets[1:] - 1] = np.where(chunk.logs.terminated, 0.0, final)
            scorer = prepared.fit(chunk.rewards + problem.gamma * ahead, weights=known, valid=valid)
            values, final = _expected(chunk, scorer)
        return values[chunk.logs.offsets[:-1]]


def _linear_values(
    problem: Problem, chunk: Chunk, fold: int | None, to_go: int
) -> tuple[Float64Array, Float64Array]:
    """V with ``to_go`` decisions left, by linear backups, at all contexts [n] and final contexts [N]."""
    logs = chunk.logs
    values, final = np.zeros(len(logs)), np.zeros(logs.n_trajectories)
    if to_go == 0:
        return values, final
    design, sums = designed(problem, "pi", None)
    fit = fit_backups(
        sums.without(fold),
        design,
        gamma=problem.gamma,
        horizon=to_go,
        limits=value_limits(problem, to_go),
    )
    slopes = fit.tables(to_go)  # [A, d]
    for rows, probs in chunk.probs():
        values[rows] = np.einsum("ba,ba->b", probs, design.of(logs.contexts[rows]) @ slopes.T)
    final = np.einsum("ba,ba->b", chunk.final_probs, design.of(logs.final_contexts) @ slopes.T)
    return values, final


def _expected(chunk: Chunk, scorer: Scorer) -> tuple[Float64Array, Float64Array]:
    """sum_a pi(a|x) f(x, a) at all contexts [n] and final contexts [N]."""
    logs = chunk.logs
    values = np.empty(len(logs))
    for rows, probs in chunk.probs():
        values[rows] = np.einsum("ba,ba->b", probs, scorer.scores(logs.contexts[rows]))
    final = np.einsum("ba,ba->b", chunk.final_probs, scorer.scores(logs.final_contexts))
    return values, final
