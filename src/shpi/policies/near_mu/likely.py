r"""Greedy among mu's likely actions: the filter of discrete BCQ (Fujimoto et al. 2019) for any scores.

    pi(x) = argmax f(x, a)     over     { a : mu(a|x) >= share max_b mu(b|x) }

A share of 1 keeps only mu's most probable action (mu without exploration); a share of 0 is greedy in f.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi._core.softmax import row_max
from shpi.errors import ConfigError
from shpi.features.parts import saveable
from shpi.policies.base import ScorerPolicyMethods
from shpi.policies.heads import greedy_actions, masked_scores, one_hot, same_actions
from shpi.policies.scorers import Scorer
from shpi.protocols import BoolArray, Float64Array, FloatArray, Policy


@saveable("policies/among-likely")
@dataclass(frozen=True, eq=False, repr=False)
class AmongLikely(ScorerPolicyMethods):
    """Greedy in f among the actions that mu takes at least ``share`` times as often as its favourite."""

    scorer: Scorer
    mu: Policy
    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError(expected="a share in [0, 1]", found=str(self.share), where="AmongLikely")
        same_actions(self.scorer, self.mu)

    @property
    def described(self) -> str:
        """The rule in one sentence."""
        if self.share == 1:
            return "It takes the logging policy's favourite action, without exploration."
        return f"It takes f's best among the actions with {self.share:.0%} of the favourite's probability."

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """All mass on one action, [n, A]."""
        scores = masked_scores(self.scorer, contexts, candidates)
        mu = self.mu.action_probs(contexts, candidates)
        likely = np.where(mu >= self.share * row_max(mu), scores, -np.inf)
        return one_hot(greedy_actions(likely), self.n_actions)
