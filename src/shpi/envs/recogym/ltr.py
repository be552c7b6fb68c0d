"""The long-term reward of the RecoGym experiment: the present value to the user of all clicks so far.

    S_t      = { a_s : s <= t, click_s = 1 }              the products clicked so far, the one at t included
    m_t[k]   = max_{i in S_t} E[i, k]                     E [P, K], the embeddings of recommendations
    Y_t      = <omega_t, m_t>,   0 while S_t is empty     omega_t, the interest that decided the click at t

``weights="signed"`` takes omega as it is. Y may then be negative, as in the paper, and is submodular only in
the components where omega is positive. ``weights="positive"`` takes max(omega, 0), and a maximum that starts
at 0: truly monotone and submodular. ``floor=True`` starts the maximum at 0 with signed weights also.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from shpi.errors import ConfigError
from shpi.protocols import BoolArray, Float64Array, Int64Array, IntArray

Weights = Literal["signed", "positive"]


def check_weights(weights: str) -> None:
    """Raise unless ``weights`` is a known name."""
    if weights not in ("signed", "positive"):
        raise ConfigError(expected="weights 'signed' or 'positive'", found=repr(weights))


class LongTermReward:
    """Y of n users, recomputed only for those whose clicks or interests have changed."""

    def __init__(self, embedding: Float64Array, n: int, *, weights: Weights, floor: bool) -> None:
        check_weights(weights)
        self._embedding = embedding
        self._positive = weights == "positive"
        start = 0.0 if floor or self._positive else -np.inf
        self._best: Float64Array = np.full((n, embedding.shape[1]), start)  # m_t [n, K]
        self._clicked: BoolArray = np.zeros(n, dtype=bool)
        self.value: Float64Array = np.zeros(n)  # Y_t [n]

    def click(self, rows: Int64Array, actions: Int64Array, omega: Float64Array) -> None:
        """Add the clicked ``actions`` [m] of the users ``rows`` [m], whose interests are ``omega`` [m, K]."""
        self._best[rows] = np.maximum(self._best[rows], self._embedding[actions])
        self._clicked[rows] = True
        self.refresh(rows, omega)

    def forget(self, rows: Int64Array) -> None:
        """Set Y of users who are gone to 0."""
        self._clicked[rows] = False
        self.value[rows] = 0.0

    def refresh(self, rows: Int64Array, omega: Float64Array) -> None:
        """Update Y for the new interests ``omega`` [m, K] of the users ``rows`` [m]."""
        known = self._clicked[rows]
        rows, omega = rows[known], omega[known]
        if self._positive:
            omega = np.maximum(omega, 0.0)
        self.value[rows] = row_dots(omega, self._best[rows])


def row_dots(left: Float64Array, right: Float64Array) -> Float64Array:
    """<left_i, right_i> for each row of two arrays [m, K], added in the order of k whatever m is."""
    total: Float64Array = left[:, 0] * right[:, 0]
    for k in range(1, left.shape[1]):
        total += left[:, k] * right[:, k]
    return total


def long_term_rewards(
    embedding: Float64Array,
    omega: Float64Array,
    actions: IntArray,
    clicks: IntArray | BoolArray,
    *,
    weights: Weights = "signed",
    floor: bool = False,
) -> Float64Array:
    """Y [n, T] of complete trajectories: embedding [P, K], omega [n, T, K], actions and clicks [n, T]."""
    users, steps = actions.shape
    reward = LongTermReward(embedding, users, weights=weights, floor=floor)
    everyone = np.arange(users)
    out = np.empty((users, steps))
    for t in range(steps):
        rows = np.flatnonzero(clicks[:, t])
        reward.click(rows, actions[rows, t], omega[rows, t])
        reward.refresh(everyone, omega[:, t])
        out[:, t] = reward.value
    return out
