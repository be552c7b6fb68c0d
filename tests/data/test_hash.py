"""The hash of a user: what it is, that it is even, and that the order of users does not matter."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from shpi._core.hashing import hash_users, part_of, share_of
from shpi.data._log.users import folds_by_hash
from shpi.data.columns import Columns
from shpi.data.logged import LoggedData
from shpi.data.shards import prepare_shards

COLUMNS = Columns(user="user", time="time", action="a", propensity="p", reward="r", context=["x"])


def log_of(users: np.ndarray) -> LoggedData:
    n = len(users)
    return LoggedData.from_arrays(
        contexts=np.zeros((n, 1)), actions=np.zeros(n, int), rewards=np.zeros(n),
        propensities=np.full(n, 0.5), offsets=np.arange(n + 1), users=users, n_actions=2,
    )  # fmt: skip


def test_the_hash_is_what_it_was_when_it_was_written_down():
    """A change would deal users into other folds and splits than before: these numbers may never change."""
    pinned = [9796213135019903602, 17173144616335371909, 12017515806408292518]
    assert hash_users([7, "anna", "zoë"], "split", 0).tolist() == pinned
    assert hash_users(np.array([7]), "split", 0)[0] == hash_users(["7"], "split", 0)[0]


def test_purposes_and_seeds_draw_independently():
    ids = np.arange(4000)
    shares = [share_of(hash_users(ids, p, s)) for p, s in (("split", 0), ("split", 1), ("fold", 0))]
    assert all(abs(share.mean() - 0.5) < 0.02 and share.min() >= 0 and share.max() < 1 for share in shares)
    correlation = np.corrcoef(shares) - np.eye(3)
    assert np.abs(correlation).max() < 0.06  # four standard errors


@pytest.mark.parametrize("folds", [2, 5])
def test_folds_are_even_and_independent_of_the_order(folds):
    ids = np.arange(101)
    fold = folds_by_hash(hash_users(ids, "fold", 3), folds)
    assert np.ptp(np.bincount(fold)) <= 1
    shuffled = np.random.default_rng(0).permutation(101)
    assert (folds_by_hash(hash_users(shuffled, "fold", 3), folds) == fold[shuffled]).all()


def test_splits_do_not_depend_on_the_order_of_users():
    logs, order = log_of(np.arange(300)), np.random.default_rng(0).permutation(300)
    out = set(logs.split_users(0.3, seed=4)[1].users)
    assert out == set(log_of(order).split_users(0.3, seed=4)[1].users)
    assert len(out) == 90
    tiny = log_of(np.arange(2))
    for seed in range(20):
        assert [half.n_users for half in tiny.split_users(0.001, seed=seed)] == [1, 1]


def test_what_was_split_off_can_be_split_again_with_the_same_seed():
    train, held_out = log_of(np.arange(400)).split_users(0.5, seed=0)
    for log in (train, held_out):
        assert [half.n_users for half in log.split_users(0.3, seed=0)] == [140, 60]


def test_shards_are_dealt_by_our_own_hash(tmp_path):
    names = [f"u{i}" for i in range(40)]
    table = pl.DataFrame({"user": names, "time": 0, "a": [0, 1] * 20, "p": 0.5, "r": 1.0, "x": 0.0})
    shards = prepare_shards(table, COLUMNS, tmp_path / "shards", shards=4, progress=False)
    bucket = part_of(hash_users(names, "shard"), 4)
    for file, logs in zip(shards.files, shards, strict=True):
        number = int(file.stem.removeprefix("shard-"))
        assert set(logs.users) == {name for name, b in zip(names, bucket, strict=True) if b == number}


def test_a_fine_division_lies_within_few_parts_of_a_coarse_one():
    hashes = hash_users(np.arange(20_000), "shard")
    shards, blocks = part_of(hashes, 20), part_of(hashes, 77)
    assert (np.bincount(shards, minlength=20) > 850).all()
    met = [len(np.unique(shards[blocks == block])) for block in range(77)]
    assert max(met) == 2
    assert min(met) == 1
