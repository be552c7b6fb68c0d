r"""What acts on f in the end: bounded ratios, or one action of those that mu is likely to take.

`BoundedRatio` keeps a policy near mu, exploration included, so that the log can measure it. Two observations
ask for more (tuned on seeds from 100):

* Exploration can cost more than f's improvements bring. HIV's agent returns 1.7e9 with epsilon = 0.3 and
  4.3e10 without; bounded ratios 2.0e10. Windows of k = 10 do not show it, the harm comes later. So policies
  without exploration, `AmongLikely` of several shares, challenge the chosen one over `FARTHER` steps, and
  have to be better by a paired t of `BETTER`. On synthetic logs (epsilon 0.3, seeds 100 to 105), where
  they are worse, t is -0.2 to -5.3; in HIV 1.4 and more.
* Where f is clear, but the log is too small to measure any policy (`ImprovedPolicy.proven` is false), bounds
  that keep it measurable only cost. RecoGym, ten seeds: mu 1.23, bounded ratios 1.59, f's best action among
  those with a tenth of the favourite's probability 1.79.

Where nothing can be shown, mu itself is what to keep. A clone that is far from it is no substitute: it hedges
among actions of which mu takes one. Its favourites are nearer (RecoGym: clone 0.98, its favourites 1.33).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shpi.advantages import Advantages, ratios_of
from shpi.data.logged import LoggedData
from shpi.learners.cloning import FAR, distance_to_mu
from shpi.learners.gain import clustered_error, gain_parts
from shpi.learners.on_log import Improvement
from shpi.oracles import PreparedOracle
from shpi.policies import AmongLikely, Policy
from shpi.policies.scorers import Scorer
from shpi.protocols import Float64Array

SHARES = (1.0, 0.3)  # of the challengers; 1 is mu without exploration
UNPROVEN = 0.1  # the share where no gain can be measured
FARTHER = 40  # steps
BETTER = 1.0  # t


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """Compares the heads of one f on a log.

    Args:
        improve: bounded ratios on that log.
        advantages: A_k over `FARTHER` steps while the policy with pi(a_t|x_t) [n] goes on.
        prepared: the oracle of that log.
    """

    improve: Improvement
    advantages: Callable[[Float64Array], Advantages]
    prepared: PreparedOracle

    def winner(self, scorer: Scorer) -> Policy:
        """The challenger with the largest gain of those that are better than bounded ratios, or these."""
        assert self.improve.mu is not None
        gain, parts = self._gain(self.improve.taken_probs(scorer, self.prepared))
        best, policy = gain, self.improve.policy(scorer)
        for share in SHARES:
            other, its_parts = self._gain(self.improve.likely_probs(scorer, share, self.prepared))
            if other > best and other - gain > BETTER * clustered_error(its_parts - parts):
                best, policy = other, AmongLikely(scorer, self.improve.mu, share)
        return policy

    def _gain(self, probs: Float64Array) -> tuple[float, Float64Array]:
        logs, found = self.improve.logs, self.advantages(probs)
        return gain_parts(logs, found, np.where(found.valid, ratios_of(logs, probs), 0.0))


def instead_of(mu: Policy, logs: LoggedData, scorer: Scorer) -> Policy:
    """The clone, or its favourite actions where it is far from mu on this log."""
    return AmongLikely(scorer, mu, 1.0) if distance_to_mu(mu, logs) > FAR else mu
