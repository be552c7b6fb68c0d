r"""What acts on f in the end: bounded ratios, or one action of those that mu is likely to take.

`BoundedRatio` keeps a policy near mu, exploration included, so that the log can measure it. Two observations
ask for more (seeds from 100):

* Exploration can cost more than f's improvements bring. HIV's agent returns 1.7e9 with epsilon = 0.3 and
  4.3e10 without, bounded ratios 2.0e10. Windows of k = 10 do not show it, the harm comes later. So mu's
  favourite action challenges the chosen policy: that with the larger gain over `FARTHER` steps is taken. The
  paired t of the difference is 0.05 to 3 in seven HIV logs, and -5.3 to -0.2 in nine synthetic ones with
  epsilon = 0.3, where the favourite is worse. That is a thin margin, and rounding can decide: synthetic seed
  102 has since crossed it (`python -m benchmarks heads`: 8,357 instead of 8,399, mu 8,392), and one of the
  ten reported HIV logs (1.8e10 instead of 3.9e10).
* Where f is clear, but the log is too small to measure any policy (`ImprovedPolicy.proven` is false), bounds
  that keep it measurable only cost. RecoGym, ten logs: mu 1.23, bounded ratios 1.59, f's best action among
  those with a tenth of the favourite's probability 1.79.

Where nothing can be shown, mu itself is what to keep. A clone that is far from it is no substitute: it hedges
among actions of which mu takes one. Its favourites are nearer (RecoGym: clone 0.98, its favourites 1.33).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shpi.advantages import Advantages, ratios_of
from shpi.data.logged import LoggedData
from shpi.learners.cloning import FAR, distance_to_mu
from shpi.learners.gain import gain_parts
from shpi.learners.on_log import Improvement
from shpi.oracles import PreparedOracle
from shpi.policies import AmongLikely, Policy
from shpi.policies.scorers import Scorer
from shpi.protocols import Float64Array

FAVOURITE = 1.0  # the share that leaves mu's favourite action alone
UNPROVEN = 0.1  # the share where no gain can be measured
FARTHER = 40  # steps


def bounded_or_favourite(
    improve: Improvement,
    scorer: Scorer,
    advantages: Callable[[Float64Array], Advantages],
    prepared: PreparedOracle | None = None,
) -> Policy:
    """The one with the larger gain on the log of ``improve``; bounded ratios if they are equal.

    f has been fitted to these users, which favours bounded ratios; there are too few others to tell.

    Args:
        improve: bounded ratios on that log.
        scorer: f.
        advantages: A_k over `FARTHER` steps while the policy with pi(a_t|x_t) [n] goes on.
        prepared: the oracle of that log, if it is at hand.
    """
    assert improve.mu is not None

    def gain(probs: Float64Array) -> float:
        found = advantages(probs)
        rho = np.where(found.valid, ratios_of(improve.logs, probs), 0.0)
        return gain_parts(improve.logs, found, rho)[0]

    bounded = gain(improve.taken_probs(scorer, prepared))
    if gain(improve.likely_probs(scorer, FAVOURITE, prepared)) > bounded:
        return AmongLikely(scorer, improve.mu, FAVOURITE)
    return improve.policy(scorer)


def instead_of(mu: Policy, logs: LoggedData, scorer: Scorer) -> Policy:
    """The clone, or its favourite actions where it is far from mu on this log."""
    return AmongLikely(scorer, mu, FAVOURITE) if distance_to_mu(mu, logs) > FAR else mu
