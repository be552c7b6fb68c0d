"""The hash of a user id, which decides shards, folds, splits and samples.

It is blake2b of the id as text, so it depends on no library's version, no machine and no order of rows, and
7 and "7" are the same user. What is drawn by it does not depend on how a log is cut into shards.

Each purpose has its own, independent hash: sharing a shard says nothing about folds, splits or samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

UInt64Array = NDArray[np.uint64]
Purpose = Literal["shard", "fold", "split", "sample"]

RULE = "blake2b-64 of the id as text, person = purpose, salt = blake2b-128 of the seed as text"


def hash_users(ids: NDArray[Any] | Iterable[Any], purpose: Purpose, seed: int = 0) -> UInt64Array:
    """A hash of each id [U]. It takes about a microsecond per id: pass every user once.

    Args:
        ids: ids of users, numbers or text.
        purpose: what the hash decides.
        seed: random seed; another one gives independent hashes.
    """
    salt = blake2b(str(seed).encode(), digest_size=16).digest()
    start = blake2b(digest_size=8, salt=salt, person=purpose.encode())
    values = ids.tolist() if isinstance(ids, np.ndarray) else ids
    return hash_each(start, (str(value).encode() for value in values))


def share_of(hashes: UInt64Array) -> NDArray[np.float64]:
    """Each hash as a uniform number in [0, 1) [U]."""
    shares: NDArray[np.float64] = (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return shares


def part_of(hashes: UInt64Array, count: int) -> NDArray[np.int64]:
    """Which of ``count`` equal ranges of hashes each one is in [U].

    Ranges of a finer division lie within one or two of a coarser one, so a block of an evaluation reads one
    or two shards. With a remainder each block would read all of them, and the work would grow with the
    square of the log.
    """
    parts: NDArray[np.int64] = (share_of(hashes) * count).astype(np.int64)
    return parts


def hash_each(start: Any, contents: Iterable[bytes]) -> UInt64Array:
    """A hash of each content, starting from a hash of 8 bytes, whose state is not changed."""
    digests = bytearray()
    for content in contents:
        state = start.copy()
        state.update(content)
        digests += state.digest()
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
