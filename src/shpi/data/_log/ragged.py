"""Index arithmetic on ragged arrays: flat rows in time order plus offsets, no Python loop over users."""

from __future__ import annotations

import numpy as np

from shpi.protocols import BoolArray, Int64Array, IntArray


def lengths(offsets: Int64Array) -> Int64Array:
    """The number of rows of each group."""
    return np.diff(offsets)


def offsets_from_lengths(counts: IntArray) -> Int64Array:
    """Offsets [g + 1] of groups with the given numbers of rows [g]."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def group_of_row(offsets: Int64Array) -> Int64Array:
    """For each row, the group that it belongs to."""
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))


def position_in_group(offsets: Int64Array) -> Int64Array:
    """For each row, its position 0, 1, … in its group."""
    return np.arange(offsets[-1], dtype=np.int64) - np.repeat(offsets[:-1], np.diff(offsets))


def rows_of_groups(offsets: Int64Array, groups: IntArray) -> Int64Array:
    """The row numbers of the chosen groups, one group after the other."""
    counts = np.diff(offsets)[groups]
    inner = offsets_from_lengths(counts)
    return np.arange(inner[-1], dtype=np.int64) + np.repeat(offsets[:-1][groups] - inner[:-1], counts)


def offsets_from_starts(starts: BoolArray) -> Int64Array:
    """Offsets of groups, given for each row whether a group starts there (row 0 always does)."""
    first = np.flatnonzero(starts).astype(np.int64)
    return np.append(first, np.int64(len(starts)))
