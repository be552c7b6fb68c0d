"""Correct a selection bias: a log always shows users leaving, but users continuing only until it stops.

In a table with one row per decision, a column that marks who left, and no final contexts, the last row of a
user who stayed does not show what followed, but the last row of a user who left does. Learning only from rows
with a known successor overstates how often users leave, easily by a factor of 1.4, which is enough to learn
the wrong action. So the users who left are thinned by the share that is unseen among those who stayed.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shpi.protocols import BoolArray, Float64Array, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

_KEPT = "_taken_as_cut"


def taken_as_cut(logs: LoggedData) -> BoolArray:
    """The trajectories [N] that terminated but are treated as if the log had stopped before that.

    c_t is the share, among users who continued after their t-th decision, of those whose next context the log
    does not show. The same share of the users who left at step t is selected, by a hash of the user: whether
    a decision can be learned from then does not depend on its outcome. Nothing is selected from a log with
    all final contexts. Parts of a log inherit the selection of the whole, so that sums over parts agree.
    """
    known: BoolArray | None = vars(logs).get(_KEPT)
    if known is None:
        known = taken_given(logs, cut_counts(logs))
        vars(logs)[_KEPT] = known
    return known


def with_cut(logs: LoggedData, taken: BoolArray) -> LoggedData:
    """Attach the selection ``taken`` [N] of the whole log to a part of it."""
    vars(logs)[_KEPT] = taken
    return logs


def cut_counts(logs: LoggedData) -> Int64Array:
    """For each step, how many users continued and for how many of them the next context is unknown, [2, T].

    The counts of shards add up (`add_counts`) to those of the whole log.
    """
    last, cut = logs.offsets[1:] - 1, ~(logs.terminated | logs.final_observed)
    steps = logs.steps
    size = int(steps.max()) + 1
    went_on = np.bincount(steps, minlength=size) - np.bincount(steps[last[logs.terminated]], minlength=size)
    return np.stack([went_on, np.bincount(steps[last[cut]], minlength=size)]).astype(np.int64)


def add_counts(left: Int64Array, right: Int64Array) -> Int64Array:
    """The sum of two tables [2, T] whose longest trajectories may differ."""
    total = np.zeros((2, max(left.shape[1], right.shape[1])), dtype=np.int64)
    total[:, : left.shape[1]] += left
    total[:, : right.shape[1]] += right
    return total


def taken_given(logs: LoggedData, counts: Int64Array) -> BoolArray:
    """`taken_as_cut` for a part of a log, [N], given the counts [2, T] of the whole log."""
    went_on, unseen = counts
    taken = np.zeros(logs.n_trajectories, dtype=bool)
    if not unseen.any() or not logs.terminated.any():
        return taken
    left = (logs.offsets[1:] - 1)[logs.terminated]
    steps = logs.steps
    overall = unseen.sum() / max(int(went_on.sum()), 1)
    share = np.where(went_on > 0, unseen / np.maximum(went_on, 1), overall)  # [T] c_t
    taken[logs.terminated] = _uniform(logs.users[logs.terminated], steps[left]) < share[steps[left]]
    return taken


def _uniform(users: NDArray[np.generic], salt: NDArray[np.integer]) -> Float64Array:
    """A uniform number in [0, 1) for each user and salt, the same in every process (splitmix64)."""
    if users.dtype.kind in "iu":
        keys = users.astype(np.int64).view(np.uint64)
    else:
        keys = np.array([zlib.crc32(str(user).encode()) for user in users.tolist()], dtype=np.uint64)
    with np.errstate(over="ignore"):
        z = keys * np.uint64(0x9E3779B97F4A7C15) + (salt.astype(np.uint64) + np.uint64(1)) * np.uint64(
            0xD1B54A32D192ED03
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    numbers: Float64Array = (z >> np.uint64(11)).astype(np.float64) / 2.0**53
    return numbers
