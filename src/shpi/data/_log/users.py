"""A log divided by user at random: folds, held-out users, samples. A user is never cut in two.

All take a random generator and draw one permutation of the users, so that the same seed gives the same users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shpi.protocols import BoolArray, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData


def folds_of_users(n_users: int, folds: int, rng: np.random.Generator) -> Int64Array:
    """The fold of each user, [users]; sizes differ by one user at most."""
    return np.asarray(rng.permutation(n_users) % folds, dtype=np.int64)


def time_blocks(n_rows: int, folds: int) -> Int64Array:
    """The fold of each row where there is one user only: consecutive stretches of time, [n]."""
    return np.arange(n_rows) * min(folds, n_rows) // n_rows


def held_out_users(n_users: int, share: float, rng: np.random.Generator) -> BoolArray:
    """Draw the held-out users, [users]: about ``share`` of them, none for 0, and never all."""
    count = min(max(round(share * n_users), int(share > 0)), n_users - 1)
    held_out = np.zeros(n_users, dtype=bool)
    held_out[rng.permutation(n_users)[:count]] = True
    return held_out


def sample_users(logs: LoggedData, most_rows: int, rng: np.random.Generator, *, least: int = 1) -> Int64Array:
    """Random users who have about ``most_rows`` decisions in all, and at least ``least`` users."""
    order = rng.permutation(logs.n_users)
    rows = np.bincount(logs.user_codes, weights=np.diff(logs.offsets), minlength=logs.n_users)[order]
    enough = int(np.searchsorted(np.cumsum(rows), most_rows)) + 1
    return order[: max(enough, least)]
