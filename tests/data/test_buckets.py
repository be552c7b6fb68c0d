"""Buckets of rows: those of the hash, whatever is remembered; a user is hashed once, if there is room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

from shpi._core.hashing import hash_users, part_of
from shpi.data._shards import buckets
from shpi.data._shards.buckets import Buckets, by_bucket

COUNT = 7


def blocks(as_ids: Callable[[np.ndarray], pl.Series], users: int = 3000) -> list[pl.Series]:
    rng = np.random.default_rng(0)
    return [as_ids(rng.integers(0, users, 2000)) for _ in range(5)]


def words(numbers: np.ndarray) -> pl.Series:
    return pl.Series([None if number == 5 else f"user {number}" for number in numbers.tolist()])


@pytest.mark.parametrize("places", [4, 256, 1 << 16])
@pytest.mark.parametrize("as_ids", [pl.Series, words], ids=["numbers", "words and nulls"])
def test_buckets_are_those_of_the_hash(places: int, as_ids: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of 4 places forgets nearly everybody at once."""
    monkeypatch.setattr(buckets, "LEAST_PLACES", places)
    dealt = Buckets(COUNT, rows=16)
    for ids in blocks(as_ids):
        expected = part_of(hash_users(ids.to_list(), "shard"), COUNT)
        np.testing.assert_array_equal(dealt.of(ids), expected)


def test_a_user_who_is_remembered_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Any] = []

    def noted(ids: list[Any], purpose: Any) -> Any:
        hashed.extend(ids)
        return hash_users(ids, purpose)

    monkeypatch.setattr(buckets, "hash_users", noted)
    dealt, ids = Buckets(COUNT, rows=10_000), blocks(pl.Series)
    for block in ids:
        dealt.of(block)
    users = len(pl.concat(ids).unique())
    assert users <= len(hashed) < 1.1 * users  # some share a place with another one


def test_users_do_not_drive_each_other_out_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Crowded as five million users in sixteen million places; with one place each, 2.4 times were hashed."""
    hashed: list[Any] = []

    def noted(ids: list[Any], purpose: Any) -> Any:
        hashed.extend(ids)
        return hash_users(ids, purpose)

    monkeypatch.setattr(buckets, "hash_users", noted)
    monkeypatch.setattr(buckets, "LEAST_PLACES", 8192)
    dealt, rng = Buckets(COUNT, rows=16), np.random.default_rng(0)
    for _ in range(20):
        dealt.of(pl.Series(rng.integers(0, 2500, 2000)))
    assert len(hashed) < 1.25 * 2500


@pytest.mark.parametrize("count", [3, 70_000])
def test_rows_of_a_bucket_keep_their_order(count: int) -> None:
    rng = np.random.default_rng(1)
    bucket = rng.integers(0, count, 500)
    frame = pl.DataFrame({"row": np.arange(500), "word": [f"{number}" for number in bucket]})
    dealt = dict(by_bucket(frame, bucket, count))
    assert sorted(dealt) == np.unique(bucket).tolist()
    for number, rows in dealt.items():
        assert rows.equals(frame.filter(pl.Series(bucket == number)))
