r"""How much hidden confounding could bias an estimate: the marginal sensitivity model.

Estimated propensities mu(a|x) condition on x alone, but the logging rule may have used more. In Tan's (2006)
model its true odds differ from the estimated ones by a factor of at most Gamma:

    1/mu*(a|x, hidden) = 1 + (1/mu(a|x) - 1) lambda,      1/Gamma <= lambda <= Gamma

So a product of ratios lies between two known bounds, and sorting finds the smallest self-normalised mean of
the rewards of a step (Zhao, Small and Bhattacharya 2019): the largest weights go to the smallest rewards. Its
distance from the mean at Gamma = 1 is the largest bias that confounding of this size can have added. The
lower bound of the lift minus this bias is its bound under Gamma, and the Gamma at which it reaches 0 is the
confounding that it would take to undo the answer.

A gate's default is Gamma = 1.3: a hidden cause that moves a probability from 50 % to 57 %. With 2,000 users
and four decisions each, the negative controls (`shpi.ope.checks.balance.joint_test`) detect a Gamma of 1.2 in
about half of the logs and one of 1.5 in five of six (`python -m benchmarks gate_checks`). So 1.3 is about the
size that they can miss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shpi.ope.estimators.importance import prefix_sums
from shpi.ope.problem import Chunk, Problem
from shpi.protocols import Float64Array, Int64Array

LARGEST = 10.0  # the largest Gamma that is searched
_STEPS = 14  # bisection steps; they find Gamma to within 0.001


@dataclass(frozen=True, kw_only=True, eq=False)
class StepRows:
    """The decisions at one step and the trajectories that terminated before it, sorted by rising reward."""

    rewards: Float64Array  # [m] 0 for terminated trajectories
    counts: Float64Array  # [m] the factors b, see `shpi.ope.problem`
    discount: float
    rows: Int64Array  # [m] decisions whose importance weights apply


@dataclass(frozen=True, kw_only=True, eq=False)
class Sensitivity:
    """How far hidden confounding can move the value of a policy on one log."""

    steps: tuple[StepRows, ...]
    taken: Float64Array  # [n] pi(a_t|x_t)
    odds: Float64Array  # [n] 1/mu - 1
    share: float  # share of the policy in the mixture with the logging policy
    chunk: Chunk
    scale: float  # trajectories per user

    @classmethod
    def of(cls, problem: Problem, share: float = 1.0) -> Sensitivity:
        """Prepare a sample of the log: sort the rewards of each step."""
        chunk = problem.sample()
        logs = chunk.logs
        assert logs.propensities is not None
        lengths = np.diff(logs.offsets)
        ended = np.flatnonzero(logs.terminated)
        last = logs.offsets[1:][ended] - 1
        known = chunk.observed
        sorted_steps = []
        for t in range(problem.horizon):
            here = np.flatnonzero((chunk.steps == t) & known)
            gone = last[lengths[ended] <= t]
            rewards = np.concatenate([chunk.rewards[here], np.zeros(len(gone))])
            if not len(rewards):
                continue
            b = np.concatenate([np.full(len(here), 1 / problem.kept[t]), 1 / problem.kept[chunk.steps[gone]]])
            order = np.argsort(rewards, kind="stable")
            rows = np.concatenate([here, gone])[order]
            sorted_steps.append(
                StepRows(
                    rewards=rewards[order], counts=b[order], discount=float(problem.discounts[t]), rows=rows
                )
            )
        return cls(
            steps=tuple(sorted_steps),
            taken=chunk.taken,
            odds=1 / logs.propensities - 1,
            share=share,
            chunk=chunk,
            scale=problem.per_user,
        )

    def value(self, gamma: float) -> float:
        """The smallest value per user under confounding of at most Gamma."""
        low, high = (self._weights(odds) for odds in (1 / gamma, gamma))
        total = 0.0
        for step in self.steps:
            least, most = step.counts * low[step.rows], step.counts * high[step.rows]
            total += step.discount * least_mean(step.rewards, least, most)
        return self.scale * total

    def bias(self, gamma: float) -> float:
        """The largest bias that confounding of at most Gamma can have added to the estimate."""
        return max(self.value(1.0) - self.value(gamma), 0.0)

    def tipping(self, margin: float) -> float:
        """The Gamma whose largest bias is ``margin``: 1 if ``margin`` <= 0, infinity if beyond `LARGEST`."""
        if margin <= 0:
            return 1.0
        if self.bias(LARGEST) < margin:
            return math.inf
        low, high = 1.0, LARGEST
        for _ in range(_STEPS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.bias(middle) < margin else (low, middle)
        return low

    def _weights(self, factor: float) -> Float64Array:
        """The weights w_{0:t} [n], with the odds against each taken action multiplied by ``factor``."""
        ratios = 1 - self.share + self.share * self.taken * (1 + self.odds * factor)
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(ratios), -700.0)
        return np.exp(np.minimum(prefix_sums(self.chunk, logs), 700.0))


def least_mean(values: Float64Array, low: Float64Array, high: Float64Array) -> float:
    """The smallest weighted mean of values in rising order, with weights between ``low`` and ``high`` [m]."""
    above, below = (
        np.append(0.0, np.cumsum((high - low) * weighted)) + np.sum(low * weighted)
        for weighted in (values, np.ones_like(values))
    )
    fine = below > 0
    return float(np.min(above[fine] / below[fine])) if fine.any() else 0.0
