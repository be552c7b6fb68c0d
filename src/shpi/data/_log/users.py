"""Divide a log by user at random: folds, held-out users, samples. A user is never cut in two.

Splits and samples use the hash of the user's id (`shpi._core.hashing`): neither the order of the users nor
the shards of a log matter. Learners draw folds from a random generator, one permutation of the users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shpi._core.hashing import UInt64Array, hash_users
from shpi.protocols import BoolArray, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData


def folds_of_users(n_users: int, folds: int, rng: np.random.Generator) -> Int64Array:
    """The fold of each user, [users]; sizes differ by one user at most."""
    return np.asarray(rng.permutation(n_users) % folds, dtype=np.int64)


def time_blocks(n_rows: int, folds: int) -> Int64Array:
    """The fold of each row [n] of a log with a single user: consecutive blocks of time."""
    return np.arange(n_rows) * min(folds, n_rows) // n_rows


def held_out_users(n_users: int, share: float, rng: np.random.Generator) -> BoolArray:
    """Draw the held-out users, [users]: about ``share`` of them, none for 0, and never all."""
    count = min(max(round(share * n_users), int(share > 0)), n_users - 1)
    held_out = np.zeros(n_users, dtype=bool)
    held_out[rng.permutation(n_users)[:count]] = True
    return held_out


def folds_by_hash(hashes: UInt64Array, folds: int) -> Int64Array:
    """The fold of each user, [users], by the order of their hashes; sizes differ by one user at most."""
    fold = np.empty(len(hashes), dtype=np.int64)
    fold[np.argsort(hashes, kind="stable")] = np.arange(len(hashes)) % folds
    return fold


def split_hashes(logs: LoggedData, seed: int) -> UInt64Array:
    """The hash of each user [users] that decides the split of a log."""
    return hash_users(logs.user_ids, "split", seed)


def largest_held_out(hashes: UInt64Array, share: float) -> np.uint64:
    """Users with hashes up to this one are held out: about ``share`` of them, at least one, never all.

    The threshold is a rank, not a fixed value: after an earlier split the remaining users all have large
    hashes, and a fixed threshold would hold out none of them.
    """
    count = min(max(round(share * len(hashes)), 1), len(hashes) - 1)
    return np.uint64(np.partition(hashes, count - 1)[count - 1])


def first_users(logs: LoggedData, order: Int64Array, most_rows: int, *, least: int = 1) -> Int64Array:
    """The first users of an order: about ``most_rows`` decisions in total, and at least ``least`` users."""
    rows = np.bincount(logs.user_codes, weights=np.diff(logs.offsets), minlength=logs.n_users)[order]
    enough = int(np.searchsorted(np.cumsum(rows), most_rows)) + 1
    return order[: max(enough, least)]
