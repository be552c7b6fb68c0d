"""Which bucket a row belongs to, by the hash of its user, and the rows of a block in the order of buckets.

A user's hash takes about a microsecond. In a long log most users of a block were in blocks before it, so
buckets that are known are remembered, in a table of bounded size: a user who loses the place in it to another
one is hashed again. Each user may take one of four neighbouring places. With a single place, two users who
share it would replace each other in every block: of five million users in sixteen million places, one in
seven.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shpi._core.hashing import UInt64Array, hash_users, part_of
from shpi.protocols import Int64Array

LEAST_PLACES, MOST_PLACES = 1 << 16, 1 << 24  # users that are remembered, 16 bytes each
BESIDE = (0, 1, 2, 3)  # offsets of the four places of a user: mostly in one cache line
SLICE = 1 << 15  # rows looked up at once: what is made of them stays in the cache
ROWS_PER_PLACE = 4  # of the table; users have about as many decisions, or more
_SEEDS = (1, 2)  # of polars' hash, which tells users apart within this process and is never kept
_ENTRY = np.dtype([("mark", np.uint64), ("bucket", np.int64)])


class Buckets:
    """Deals users into ``count`` buckets."""

    def __init__(self, count: int, rows: int) -> None:
        """Begin with an empty memory.

        Args:
            count: number of buckets.
            rows: number of rows of the table, about.
        """
        wanted = min(max(rows // ROWS_PER_PLACE, LEAST_PLACES), MOST_PLACES)
        self.count = count
        self._places = np.zeros(1 << (wanted - 1).bit_length(), dtype=_ENTRY)
        self._places["bucket"] = -1  # nobody has this place

    def of(self, ids: pl.Series) -> Int64Array:
        """The bucket of each row's user [n]."""
        buckets = self._remembered(ids)
        strange = np.flatnonzero(buckets < 0)
        if len(strange):
            buckets[strange] = self._learned(ids.gather(strange))
        return buckets

    def _learned(self, ids: pl.Series) -> Int64Array:
        """The buckets of rows whose users are not known, and are from now on."""
        users = ids.unique()
        hashed = part_of(hash_users(users.to_list(), "shard"), self.count)
        self._remember(users, hashed)
        buckets = self._remembered(ids)
        left = np.flatnonzero(buckets < 0)
        if len(left):
            lost = np.flatnonzero(self._remembered(users) < 0)
            known = pl.DataFrame({"user": users.gather(lost), "bucket": hashed[lost]})
            rows = pl.DataFrame({"user": ids.gather(left)})
            joined = rows.join(known, on="user", how="left", nulls_equal=True, maintain_order="left")
            buckets[left] = joined["bucket"].to_numpy()
        return buckets

    def _remember(self, users: pl.Series, buckets: Int64Array) -> None:
        """Put new users into free places; where there is none, into that of another user."""
        places, marks = self._place_and_mark(users)
        entries = np.empty(len(users), dtype=_ENTRY)
        entries["mark"], entries["bucket"] = marks, buckets
        waiting = np.arange(len(users))
        for beside in BESIDE:
            wanted = places[waiting] ^ beside
            free = self._places["bucket"][wanted] < 0
            self._places[wanted[free]] = entries[waiting[free]]  # of two new users with one place, one stays
            waiting = waiting[self._places["mark"][wanted] != marks[waiting]]
        self._places[places[waiting]] = entries[waiting]

    def _remembered(self, ids: pl.Series) -> Int64Array:
        """Their buckets; -1 for users who are not remembered [n]."""
        buckets = np.empty(len(ids), dtype=np.int64)
        for start in range(0, len(ids), SLICE):
            places, marks = self._place_and_mark(ids.slice(start, SLICE))
            entries = self._places[places]
            known = np.where(entries["mark"] == marks, entries["bucket"], -1)
            left = np.flatnonzero((known < 0) & (entries["bucket"] >= 0))
            for beside in BESIDE[1:]:  # a user is never stored behind a free place
                entries = self._places[places[left] ^ beside]
                known[left] = np.where(entries["mark"] == marks[left], entries["bucket"], -1)
                left = left[(known[left] < 0) & (entries["bucket"] >= 0)]
            buckets[start : start + SLICE] = known
        return buckets

    def _place_and_mark(self, ids: pl.Series) -> tuple[Int64Array, UInt64Array]:
        """Two hashes, of which the first says the place: users must agree in both to be taken for one."""
        first, marks = (ids.hash(seed).to_numpy() for seed in _SEEDS)
        return (first & np.uint64(len(self._places) - 1)).astype(np.int64), marks


def by_bucket(frame: pl.DataFrame, buckets: Int64Array, count: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows of every bucket that has some, in their order: one sort instead of a copy for each bucket."""
    small: NDArray[Any] = buckets.astype(np.uint16 if count <= 1 << 16 else np.int64)  # numpy: in linear time
    order = np.argsort(small, kind="stable")
    sizes = np.bincount(buckets, minlength=count)
    ends = np.cumsum(sizes)
    dealt = frame[order]
    for bucket in np.flatnonzero(sizes):
        yield int(bucket), dealt.slice(int(ends[bucket] - sizes[bucket]), int(sizes[bucket]))
