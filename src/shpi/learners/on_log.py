"""pi(a_t|x_t) of an improved policy at the logged decisions: all that the next round needs of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shpi.data.logged import LoggedData
from shpi.oracles import PreparedOracle
from shpi.oracles.base import score_blocks
from shpi.policies import Greedy, Policy
from shpi.policies.bounded import BoundedRatio, ratio_caps, taken_within
from shpi.policies.scorers import Scorer
from shpi.protocols import Float32Array, Float64Array

CACHE_BYTES = (
    1 << 30
)  # the caps of all logged decisions are kept up to this size, else computed in each round


@dataclass(frozen=True, kw_only=True, eq=False)
class Improvement:
    """The step from scores to a policy: greedy, or greedy within bounded ratios to a clone of mu.

    Args:
        logs: where the ratios are needed.
        mu: the clone; the greedy policy needs none.
        reach: of `BoundedRatio`; None for the greedy policy.
    """

    logs: LoggedData
    mu: Policy | None
    reach: float | None
    _caps: dict[int, Float32Array] = field(default_factory=dict, repr=False)  # by first row

    def policy(self, scorer: Scorer) -> Policy:
        """The improved policy."""
        if self.reach is None or self.mu is None:
            return Greedy(scorer)
        return BoundedRatio(scorer, self.mu, self.reach)

    def taken_probs(self, scorer: Scorer, prepared: PreparedOracle | None = None) -> Float64Array:
        """pi(a_t|x_t) [n] of the improved policy; an oracle prepared on this log has its features at hand."""
        logs, probs = self.logs, np.empty(len(self.logs))
        blocks = score_blocks(scorer, logs.contexts) if prepared is None else prepared.scores_on_log(scorer)
        for rows, scores in blocks:
            if logs.candidates is not None:
                scores = np.where(logs.candidates[rows], scores, -np.inf)
            if self.reach is None or self.mu is None:
                probs[rows] = scores.argmax(axis=1) == logs.actions[rows]
            else:
                probs[rows] = taken_within(self._caps_of(rows), scores, logs.actions[rows])
        return probs

    def _caps_of(self, rows: slice) -> Float32Array:
        if rows.start in self._caps:
            return self._caps[rows.start]
        assert self.reach is not None
        assert self.mu is not None
        mask = None if self.logs.candidates is None else self.logs.candidates[rows]
        caps = ratio_caps(self.mu.action_probs(self.logs.contexts[rows], mask), self.reach)
        small = caps.astype(np.float32)
        if 4 * len(self.logs) * self.logs.n_actions <= CACHE_BYTES:
            self._caps[rows.start] = small
        return small
