r"""Logged transitions as tensors, from which off-policy Q-learning samples.

This module handles the three endings. With on_t = 0 if the user is gone for good after decision t,

    Q(x_t, a_t) <- r_t + gamma on_t Q(x_{t+1}, a')

A session end does not end a trajectory. A truncated trajectory bootstraps from its last context if that was
observed; if it was not, or if the candidates there are unknown, the last decision is left out.

*Scale.* Networks learn Q' in Q = level + unit Q', which turns the equation above into

    Q'(x_t, a_t) <- r'_t + gamma on_t Q'(x_{t+1}, a')      r'_t = (r_t - (1 - gamma on_t) level) / unit

This is exact for all endings, unlike subtracting the mean reward, which biases the value of leaving. Level
and unit are chosen so that r' has mean 0 and standard deviation 1 - gamma. Then Q' is of order 1, and its
errors stay where smooth L1 is quadratic. Larger errors make smooth L1 estimate something close to a median:
with r' of standard deviation 1, the error of Q was 1.1 to 8 times as large on eight finite worlds, 4 times in
the median.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import DataError
from shpi.features import FeatureMap, Standardise
from shpi.learners.base import rewards_of
from shpi.policies import MlpScorer
from shpi.policies.sampling import check_candidates
from shpi.protocols import BoolArray, Float32Array, Float64Array, Int64Array
from shpi.values.transitions import goes_on, next_states, states, usable_transitions

CHUNK = 500  # steps whose rows are drawn at once
SAMPLE = 50_000  # contexts from which their mean and spread are taken


class Batch(NamedTuple):
    """Transitions of one gradient step."""

    contexts: Any  # [b, d] standardised
    actions: Any  # [b, 1]
    rewards: Any  # [b] r'
    discounts: Any  # [b] gamma, or 0 where the user is gone
    following: Any  # [b, d] the next contexts, standardised
    forbidden: Any  # [b, A] or None
    forbidden_next: Any  # [b, A] or None


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """The usable transitions of a log; states are kept once, transitions are pairs of row numbers."""

    torch: Any
    inputs: FeatureMap
    states: Any  # [n + N, d] standardised contexts of the decisions, then of the trajectories' ends
    rows: Int64Array  # [m] usable decisions
    following: Any  # [n] the row of the next context
    actions: Any  # [n, 1]
    rewards: Any  # [n] r'
    discounts: Any  # [n]
    forbidden: Any  # [n + N, A] or None
    n_actions: int
    level: float
    unit: float

    @classmethod
    def of(cls, torch: Any, logs: LoggedData, *, gamma: float, standardise: bool, learner: str) -> Replay:
        """Check the log and put it into tensors."""
        rewards = rewards_of(logs, learner, logs.reward_observed)
        usable, forbidden = _usable(logs)
        discounts = np.where(goes_on(logs), gamma, 0.0)
        scaled, level, unit = _scale(rewards, discounts, usable, 1.0 - gamma if standardise else None)
        inputs = Standardise().fit(logs.contexts[:: 1 + len(logs) // SAMPLE])
        return cls(
            torch=torch,
            inputs=inputs,
            states=torch.from_numpy(states(logs, inputs)),
            rows=np.flatnonzero(usable),
            following=torch.from_numpy(next_states(logs)),
            actions=torch.from_numpy(logs.actions.astype(np.int64))[:, None],
            rewards=torch.from_numpy(scaled),
            discounts=torch.from_numpy(discounts.astype(np.float32)),
            forbidden=None if forbidden is None else torch.from_numpy(forbidden),
            n_actions=logs.n_actions,
            level=level,
            unit=unit,
        )

    def batches(self, rng: np.random.Generator, steps: int, size: int) -> Iterator[Batch]:
        """Random transitions, with replacement, for ``steps`` gradient steps."""
        for start in range(0, steps, CHUNK):
            chosen = rng.integers(len(self.rows), size=(min(CHUNK, steps - start), size))
            for rows in self.torch.from_numpy(self.rows[chosen]):
                yield self._batch(rows)

    def scorer(self, weights: list[Float32Array], biases: list[Float32Array]) -> MlpScorer:
        """The network Q' as the scorer Q = level + unit Q', in units of the reward."""
        if not all(np.isfinite(array).all() for array in (*weights, *biases)):
            raise DataError(
                expected="a network that converges",
                found="infinite or undefined weights",
                remedy="lower the learning rate, or let the rewards be standardised",
            )
        last, offset = weights[-1].astype(np.float64), biases[-1].astype(np.float64)
        return MlpScorer(
            [*weights[:-1], last * self.unit], [*biases[:-1], offset * self.unit + self.level], self.inputs
        )

    def _batch(self, rows: Any) -> Batch:
        ahead = self.following[rows]
        masks = (None, None) if self.forbidden is None else (self.forbidden[rows], self.forbidden[ahead])
        return Batch(
            self.states.index_select(0, rows),
            self.actions[rows],
            self.rewards[rows],
            self.discounts[rows],
            self.states.index_select(0, ahead),
            *masks,
        )


def _usable(logs: LoggedData) -> tuple[BoolArray, BoolArray | None]:
    """The decisions with a known future [n], and the forbidden actions at each state [n + N, A]."""
    usable = usable_transitions(logs)
    allowed = check_candidates(logs.candidates, len(logs), logs.n_actions)
    forbidden = None
    if allowed is not None:
        final = logs.final_candidates
        if final is None:
            final = np.zeros((logs.n_trajectories, logs.n_actions), dtype=bool)
        usable[logs.offsets[1:] - 1] &= final.any(axis=1) | logs.terminated
        forbidden = ~np.concatenate([allowed, final])
    if not usable.any():
        raise DataError(
            expected="at least one decision with a reward and a known next context",
            found="none",
            remedy="give final_contexts (and final_candidates), or longer trajectories",
        )
    return usable, forbidden


def _scale(
    rewards: Float64Array, discounts: Float64Array, usable: BoolArray, wanted: float | None
) -> tuple[Float32Array, float, float]:
    """The r' [n] in float32 (0 where it is not used), the level and the unit; see the top of this file.

    ``wanted`` is the standard deviation of r'; None leaves the rewards as they are.
    """
    used, left = rewards[usable], 1.0 - discounts[usable]
    level, unit = 0.0, 1.0
    if wanted is not None:
        level = float(used.mean() / left.mean())
        shifted = used - left * level
        size = float(np.abs(shifted).max())
        spread = size * float((shifted / size).std()) if size > 0 else 0.0
        # rewards that are all the same differ by rounding only
        unit = spread / wanted if spread > 1e-9 * float(np.abs(used).max()) else 1.0
    scaled = np.zeros(len(rewards), dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled[usable] = (used - left * level) / unit
    if not np.isfinite(scaled).all():
        raise DataError(
            expected="rewards whose discounted sums fit into a float",
            found=f"rewards up to {float(np.abs(used).max()):.3g}",
            remedy="express the rewards in a larger unit",
        )
    return scaled, level, unit
