"""A policy's probabilities and scores on the logged decisions: all that the next round needs of it.

Features, scores and mu's probabilities are needed again and again: they are kept, in single precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np

from shpi.data.logged import LoggedData
from shpi.features import FeatureMap
from shpi.features.chain import same_map
from shpi.learners.constrained.baseline import Constraint, Rows, limited
from shpi.oracles import PreparedOracle
from shpi.oracles.base import SCORE_BYTES, blocks, score_blocks
from shpi.oracles.ridge import PreparedRidge
from shpi.policies import EpsilonGreedy, Greedy, Policy
from shpi.policies.heads import VW_TIES, explored
from shpi.policies.near_mu.bounded import BoundedRatio, ratio_caps, taken_within
from shpi.policies.near_mu.logistic import LogisticPolicy
from shpi.policies.scorers import LinearScorer, Scorer
from shpi.protocols import Float32Array, Float64Array, FloatArray

CACHE_BYTES = 1 << 31  # the caps and the features of the log are kept up to this size each


@dataclass(frozen=True, kw_only=True, eq=False)
class Improvement:
    """The step from scores to a policy: greedy, or greedy within bounded ratios to a clone of mu.

    Args:
        logs: the log on whose decisions the ratios are needed.
        mu: the clone; the greedy policy needs none.
        reach: the reach of `BoundedRatio`; None for the greedy policy.
        explore: the epsilon of the greedy policy, with Vowpal Wabbit's ties; 0 is argmax.
    """

    logs: LoggedData
    mu: Policy | None
    reach: float | None
    explore: float = 0.0
    _caps: dict[int, Float32Array] = field(default_factory=dict, repr=False)  # by first row
    _phi: dict[str, Any] = field(default_factory=dict, repr=False)  # the features, and their map

    def policy(self, scorer: Scorer) -> Policy:
        """The improved policy."""
        if self.reach is None or self.mu is None:
            return EpsilonGreedy(scorer, self.explore, VW_TIES) if self.explore else Greedy(scorer)
        return BoundedRatio(scorer, self.mu, self.reach)

    def taken_probs(self, scorer: Scorer, prepared: PreparedOracle | None = None) -> Float64Array:
        """pi(a_t|x_t) [n] of the improved policy; an oracle prepared on this log has its features at hand."""
        logs, probs = self.logs, np.empty(len(self.logs))
        for rows, scores in self._scores(scorer, prepared):
            if logs.candidates is not None:
                scores = np.where(logs.candidates[rows], scores, -np.inf)
            if (self.reach is None or self.mu is None) and self.explore:
                table = explored(scores.astype(np.float64), self.explore, VW_TIES)
                probs[rows] = table[np.arange(len(table)), logs.actions[rows]]
            elif self.reach is None or self.mu is None:
                probs[rows] = scores.argmax(axis=1) == logs.actions[rows]
            else:
                caps = self._caps_of(rows)
                probs[rows] = taken_within(caps, scores, logs.actions[rows], overwrite=True)
        return probs

    def _scores(self, scorer: Scorer, prepared: PreparedOracle | None) -> Iterator[tuple[slice, FloatArray]]:
        """Scores by blocks of rows, for comparison within a row only; the caller may overwrite them.

        Those of linear scorers come in single precision, relative to their mean over actions and divided by
        `_unit`: the features are kept from round to round, and scores that are nearer than 1e-7 are as good
        as equal.
        """
        if not self._single(scorer):
            yield from (
                score_blocks(scorer, self.logs.contexts)
                if prepared is None
                else prepared.scores_on_log(scorer)
            )
            return
        phi = self._features_of(scorer.features, prepared)
        relative = scorer.weights - scorer.weights.mean(axis=0)
        columns = np.ascontiguousarray((relative / self._unit(scorer)).T, dtype=np.float32)
        table = np.empty((0, scorer.n_actions), dtype=np.float32)
        for rows in blocks(len(phi), scorer.n_actions, SCORE_BYTES):
            m = rows.stop - rows.start
            table = table if len(table) >= m else np.empty((m, scorer.n_actions), dtype=np.float32)
            yield rows, np.matmul(phi[rows], columns, out=table[:m])  # one table, which stays in the cache

    def _single(self, scorer: Scorer) -> TypeGuard[LinearScorer]:
        """Whether its features are kept, in single precision; ties need the scores as they are."""
        if self.explore:
            return False
        return isinstance(scorer, LinearScorer) and 4 * len(self.logs) * scorer.features.width <= CACHE_BYTES

    def _unit(self, scorer: Scorer) -> float:
        """The divisor of `_scores`, so that single precision holds them."""
        if not self._single(scorer):
            return 1.0
        return float(np.abs(scorer.weights - scorer.weights.mean(axis=0)).max()) or 1.0

    def _features_of(self, features: FeatureMap, prepared: PreparedOracle | None) -> Float32Array:
        """Phi of all logged contexts [n, p], kept while the same map is asked for."""
        if self._phi.get("map") is not features:
            n = len(self.logs)
            phi = np.empty((n, features.width), dtype=np.float32)
            ready = prepared if isinstance(prepared, PreparedRidge) else None
            for rows in blocks(n, features.width):
                if ready is not None and ready.features is features:
                    phi[rows] = ready.phi(rows)
                else:
                    phi[rows] = features.transform(self.logs.contexts[rows])
            clone = isinstance(self.mu, LogisticPolicy) and same_map(self.mu.features, features)
            self._phi.update(map=features, phi=phi, clone=clone)
        kept: Float32Array = self._phi["phi"]
        return kept

    def _caps_of(self, rows: slice) -> Float32Array:
        """The bounds c(x) mu(a|x) [m, A]; mu itself where there are none."""
        if rows.start in self._caps:
            return self._caps[rows.start]
        mu = self._mu_of(rows)
        small = (mu if self.reach is None else ratio_caps(mu, self.reach)).astype(np.float32, copy=False)
        if 4 * len(self.logs) * self.logs.n_actions <= CACHE_BYTES:
            self._caps[rows.start] = small
        return small

    def _mu_of(self, rows: slice) -> FloatArray:
        """Probabilities of mu [m, A] at some rows; a logistic clone is evaluated in single precision."""
        assert self.mu is not None
        contexts = self.logs.contexts[rows]
        mask = None if self.logs.candidates is None else self.logs.candidates[rows]
        if not isinstance(self.mu, LogisticPolicy):
            return self.mu.action_probs(contexts, mask)
        shared = self._phi.get("clone", False)  # the features of the scores are those of the clone
        phi = self._phi["phi"][rows] if shared else self.mu.features.transform(contexts).astype(np.float32)
        return self.mu.probs_of(phi @ self.mu.weights.T.astype(np.float32), mask)


@dataclass(frozen=True, kw_only=True, eq=False)
class LimitedImprovement:
    """The same step among the policies that the support of the log allows."""

    logs: LoggedData
    constraint: Constraint
    _rows: list[Rows] = field(default_factory=list, repr=False)

    def policy(self, scorer: Scorer) -> Policy:
        """The improved policy."""
        return self.constraint.policy(scorer)

    def taken_probs(self, scorer: Scorer, prepared: PreparedOracle) -> Float64Array:
        """pi(a_t|x_t) [n] of the allowed policy that is greediest in the scores."""
        if not self._rows:
            self._rows.append(self.constraint.on(self.logs.contexts, self.logs.candidates))
        taken = np.empty(len(self.logs))
        for block, scores in prepared.scores_on_log(scorer):
            probs = limited(scores, self._rows[0], block)
            taken[block] = probs[np.arange(len(probs)), self.logs.actions[block]]
        return taken
