r"""The best policy with bounded importance ratios.

    pi = argmax_pi sum_a pi(a|x) f(x, a)     subject to     pi(a|x) <= c(x) mu(a|x)
    c(x) = max(1, reach / max_a mu(a|x))

With a reach of 1, an action gets at most mu(a|x) / max_b mu(b|x). If mu is uniform, pi is greedy; if mu
hardly explores, pi moves mu's small exploration probability towards the better actions; if mu is
deterministic, pi is mu. The solution fills the actions in the order of their scores, each up to c mu.
Products of k ratios are at most c^k, so pi can be evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi._core.softmax import row_max
from shpi.errors import ConfigError
from shpi.features.parts import saveable
from shpi.policies.base import ScorerPolicyMethods
from shpi.policies.heads import masked_scores, same_actions
from shpi.policies.scorers import Scorer
from shpi.protocols import BoolArray, Float64Array, FloatArray, IntArray, Policy


@saveable("policies/bounded-ratio")
@dataclass(frozen=True, eq=False, repr=False)
class BoundedRatio(ScorerPolicyMethods):
    """Greedy in f within pi <= c mu."""

    scorer: Scorer
    mu: Policy
    reach: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.reach) and self.reach >= 0):
            raise ConfigError(expected="a reach of at least 0", found=str(self.reach), where="BoundedRatio")
        same_actions(self.scorer, self.mu)

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """Probabilities [n, A]."""
        scores = masked_scores(self.scorer, contexts, candidates)
        caps = ratio_caps(self.mu.action_probs(contexts, candidates), self.reach)
        order = np.argsort(-scores, axis=1, kind="stable")
        filled = np.minimum(np.cumsum(np.take_along_axis(caps, order, axis=1), axis=1), 1.0)
        probs = np.empty_like(filled)
        np.put_along_axis(probs, order, np.diff(filled, axis=1, prepend=0.0), axis=1)
        whole: Float64Array = probs / probs.sum(axis=1, keepdims=True)
        return whole


def ratio_caps(mu: FloatArray, reach: float) -> FloatArray:
    """c(x) mu(a|x), [n, A], in the precision of mu."""
    bound = np.maximum(1.0, reach / row_max(mu))
    caps: FloatArray = bound * mu
    return caps


def taken_within(
    caps: FloatArray, scores: FloatArray, actions: IntArray, *, overwrite: bool = False
) -> Float64Array:
    """pi(a_i|x_i) of `BoundedRatio` for one action per row [n], without sorting.

    An action gets what the better ones leave of 1, at most its cap; of equal scores the first is better.
    With ``overwrite`` the scores are lost, and no memory is needed beside them.
    """
    rows = np.arange(len(actions))
    own = scores[rows, actions][:, None]
    equal = scores == own
    better = np.greater(scores, own, out=scores if overwrite else np.empty_like(scores))  # as 0 and 1
    if np.count_nonzero(equal) > len(rows):  # more than each action with itself
        better += equal & (np.arange(scores.shape[1]) < actions[:, None])
    left = 1.0 - np.vecdot(caps, better)
    probs: Float64Array = np.clip(left, 0.0, caps[rows, actions]).astype(np.float64)
    return probs
