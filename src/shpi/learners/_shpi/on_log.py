"""A policy's probabilities and scores on the logged decisions, for the next round of policy iteration.

Features, scores and mu's probabilities are cached in single precision, since every round needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

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
        if self.reach is None:
            return EpsilonGreedy(scorer, self.explore, VW_TIES) if self.explore else Greedy(scorer)
        assert self.mu is not None
        return BoundedRatio(scorer, self.mu, self.reach)

    def taken_probs(self, scorer: Scorer, prepared: PreparedOracle | None = None) -> Float64Array:
        """pi(a_t|x_t) [n] of the improved policy; an oracle prepared on this log has its features at hand."""
        logs, probs = self.logs, np.empty(len(self.logs))
        for rows, scores in self._scores(scorer, prepared):
            if logs.candidates is not None:
                scores = np.where(logs.candidates[rows], scores, -np.inf)
            if self.reach is not None:
                probs[rows] = taken_within(self._caps_of(rows), scores, logs.actions[rows], overwrite=True)
            elif self.explore:
                table = explored(scores.astype(np.float64), self.explore, VW_TIES)
                probs[rows] = table[np.arange(len(table)), logs.actions[rows]]
            else:
                probs[rows] = scores.argmax(axis=1) == logs.actions[rows]
        return probs

    def _scores(self, scorer: Scorer, prepared: PreparedOracle | None) -> Iterator[tuple[slice, FloatArray]]:
        """Scores by blocks of rows, for comparison within a row only; the caller may overwrite them.

        Those of linear scorers come in single precision, relative to their mean over actions and divided by
        the largest weight: the features are kept from round to round, and scores that are nearer than 1e-7
        are as good as equal. Ties need the scores as they are.
        """
        n = len(self.logs)
        linear = scorer if isinstance(scorer, LinearScorer) and not self.explore else None
        if linear is None or 4 * n * linear.features.width > CACHE_BYTES:
            yield from (
                score_blocks(scorer, self.logs.contexts)
                if prepared is None
                else prepared.scores_on_log(scorer)
            )
            return
        if self._phi.get("map") is not linear.features:
            self._keep_features(linear.features, prepared)
        relative = linear.weights - linear.weights.mean(axis=0)
        unit = float(np.abs(relative).max()) or 1.0
        columns = np.ascontiguousarray((relative / unit).T, dtype=np.float32)
        table = np.empty((0, scorer.n_actions), dtype=np.float32)
        for rows in blocks(n, scorer.n_actions, SCORE_BYTES):
            m = rows.stop - rows.start
            table = table if len(table) >= m else np.empty((m, scorer.n_actions), dtype=np.float32)
            yield rows, np.matmul(self._phi["phi"][rows], columns, out=table[:m])  # stays in the cache

    def _keep_features(self, features: FeatureMap, prepared: PreparedOracle | None) -> None:
        """Phi of all logged contexts [n, p], kept until another map is asked for."""
        phi = np.empty((len(self.logs), features.width), dtype=np.float32)
        ready = prepared if isinstance(prepared, PreparedRidge) and prepared.features is features else None
        for rows in blocks(len(phi), features.width):
            contexts = self.logs.contexts[rows]
            phi[rows] = features.transform(contexts) if ready is None else ready.phi(rows)
        clone = isinstance(self.mu, LogisticPolicy) and same_map(self.mu.features, features)
        self._phi.update(map=features, phi=phi, clone=clone)

    def _caps_of(self, rows: slice) -> Float32Array:
        """The bounds c(x) mu(a|x) [m, A]; a logistic clone is evaluated in single precision."""
        if rows.start in self._caps:
            return self._caps[rows.start]
        assert self.mu is not None
        assert self.reach is not None
        contexts = self.logs.contexts[rows]
        mask = None if self.logs.candidates is None else self.logs.candidates[rows]
        if isinstance(self.mu, LogisticPolicy):
            shared = self._phi.get("clone", False)  # the features of the scores are those of the clone
            phi = self._phi["phi"][rows] if shared else self.mu.features.transform(contexts)
            logits = phi.astype(np.float32, copy=False) @ self.mu.weights.T.astype(np.float32)
            mu: FloatArray = self.mu.probs_of(logits, mask)
        else:
            mu = self.mu.action_probs(contexts, mask)
        caps = ratio_caps(mu, self.reach).astype(np.float32, copy=False)
        if 4 * len(self.logs) * self.logs.n_actions <= CACHE_BYTES:
            self._caps[rows.start] = caps
        return caps


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
