r"""Importance sampling: reweight logged rewards by how much likelier the policy takes the logged actions.

    rho_t = pi(a_t|x_t) / mu(a_t|x_t)        w_{a:b} = rho_a rho_{a+1} … rho_b

    IPS      weights w_{0:T-1}, the whole trajectory                    plain mean
    SNIPS    the same                                                   self-normalised
    PDIS     w_{0:t} for the reward of step t, the past only            plain mean
    SNPDIS   the same                                                   self-normalised at each step

`shpi.ope.inference.steps` computes the means. IPS and PDIS are unbiased if the propensities are right and mu
supports every action of pi; their variance grows exponentially with the horizon. Prefer the self-normalised
forms: they are biased by O(1/U) but do not depend on the zero of the reward. With rewards in {-1, 0}, the
nominal 95 % bound of plain PDIS held in only 74-79 % of the logs. If trajectories have one decision,
IPS = PDIS and SNIPS = SNPDIS, the usual estimators for bandits.

``k`` keeps only the last k ratios, w_{t-k+1:t}. This lowers the variance but adds a bias, because the
contexts k steps back are then those of mu. k = 1 treats every decision as a bandit: E_{x ~ mu} E_{a ~ pi}[r].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from shpi.errors import ConfigError
from shpi.ope.estimators.base import finish
from shpi.ope.estimators.baseline import on_policy, reward_terms
from shpi.ope.inference.steps import Weigh, floored, step_means
from shpi.ope.inference.weighting import StepWeights
from shpi.ope.problem import Chunk, Problem, once
from shpi.ope.results import Estimate
from shpi.protocols import Float64Array, Int64Array


@dataclass(frozen=True, kw_only=True)
class _Weighted:
    """What all share; IPS and SNIPS are weighted over whole trajectories."""

    normalise: ClassVar[bool]
    name: str = ""

    def estimate(self, problem: Problem) -> Estimate:
        """The weighted mean of the rewards; if normalised, with standard errors floored by those of J(mu)."""
        weigh: Weigh = whole_weights
        steps = None
        if isinstance(self, _PerDecision):
            weigh, steps = partial(window_weights, k=self.k), self.k
        own = partial(step_means, problem, weigh, reward_terms, normalise=self.normalise)
        means = floored(*problem.all_of([own, partial(on_policy, problem)])) if self.normalise else own()
        value, influence = means.value, means.influence
        return finish(
            self.name, problem, value, influence, means.weights, steps=steps, consistent=self.normalise
        )


@dataclass(frozen=True, kw_only=True)
class IPS(_Weighted):
    """Inverse propensity scores over whole trajectories: (1/N) sum_i w_{0:T_i-1} sum_t gamma^t r_t."""

    normalise = False
    name: str = "IPS"


@dataclass(frozen=True, kw_only=True)
class SNIPS(_Weighted):
    """Self-normalised: sum_i w_i G_i / sum_i w_i, with w_i = w_{0:T_i-1} and G_i = sum_t gamma^t r_t."""

    normalise = True
    name: str = "SNIPS"


@dataclass(frozen=True, kw_only=True)
class _PerDecision(_Weighted):
    """What PDIS and SNPDIS share: all but whether the weights are normalised at each step."""

    k: int | None = None

    def __post_init__(self) -> None:
        if self.k is not None and self.k < 1:
            raise ConfigError(expected="k of at least 1, or None", found=str(self.k))


@dataclass(frozen=True, kw_only=True)
class PDIS(_PerDecision):
    """Per-decision importance sampling: sum_t gamma^t (1/n_t) sum_i w_{0:t} r_t."""

    normalise = False
    name: str = "PDIS"


@dataclass(frozen=True, kw_only=True)
class SNPDIS(_PerDecision):
    """Per-step self-normalised: sum_t gamma^t sum_i w_{0:t} r_t / sum_i w_{0:t}, ended users included."""

    normalise = True
    name: str = "SNPDIS"


# ---------------------------------------------------------------------- weights and terms


def whole_weights(chunk: Chunk) -> StepWeights:
    """w_{0:T-1} at every step of the trajectory, and after its end."""
    whole = prefix_sums(chunk, chunk.log_ratios)[chunk.logs.offsets[1:] - 1]
    return StepWeights(rows=whole[chunk.logs.trajectory_of_row], after=whole)


@once
def window_weights(chunk: Chunk, k: int | None) -> StepWeights:
    """w_{t-k+1:t}, or w_{0:t} if k is None. Ended trajectories keep the ratios inside the window."""
    logs = chunk.logs
    if not chunk.log_ratios.any():  # pi = mu on this log: all weights are 1
        return StepWeights.equal(chunk)
    longest = int(chunk.steps.max()) + 1
    if k is None:
        rows = prefix_sums(chunk, chunk.log_ratios)
        return StepWeights(rows=rows, after=rows[logs.offsets[1:] - 1])
    impossible = np.isneginf(chunk.log_ratios)
    finite = prefix_sums(chunk, np.where(impossible, 0.0, chunk.log_ratios))
    zeros = prefix_sums(chunk, impossible.astype(np.float64))

    def window(last: Int64Array, first: Int64Array) -> Float64Array:
        """Sums over rows first+1 .. last of one trajectory; first = -1: from its first row."""
        inside = first >= 0
        since = np.where(inside, finite[first], 0.0)
        blocked = zeros[last] - np.where(inside, zeros[first], 0.0) > 0
        return np.where(blocked, -np.inf, finite[last] - since)

    place = np.arange(len(logs), dtype=np.int64)
    begin = np.where(chunk.steps >= k, place - k, -1)
    rows = chunk.log_ratios if k == 1 else window(place, begin)
    ends, lengths = logs.offsets[1:] - 1, np.diff(logs.offsets)

    def tail(j: int) -> Float64Array:
        inside = k - 1 - j  # ratios of the trajectory that are inside the window j steps after its end
        return window(ends, np.where(lengths > inside, ends - inside, -1))

    return StepWeights(
        rows=rows, after=np.zeros(logs.n_trajectories), tail_length=min(k - 1, longest + k), tail=tail
    )


def prefix_sums(chunk: Chunk, values: Float64Array) -> Float64Array:
    """Cumulative sums over s <= t within each trajectory [n], step by step over all trajectories at once."""
    sums = values.astype(np.float64, copy=True)
    order, bounds = chunk.by_step
    for t in range(1, len(bounds) - 1):
        rows = order[bounds[t] : bounds[t + 1]]
        sums[rows] += sums[rows - 1]
    return sums
