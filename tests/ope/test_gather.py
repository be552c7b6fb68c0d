"""Results of blocks are gathered alike, whichever block arrives first."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from shpi.ope._log.gather import Both, ByUser, InList
from shpi.passes import TreeSum

PLACES = [np.array([2, 0]), np.array([4]), np.array([1, 3])]  # users of three blocks among five


def test_numbers_by_user_go_where_their_users_are() -> None:
    for order in permutations(range(3)):
        by_user = ByUser(PLACES)
        for number in order:
            by_user.give(number, np.stack([PLACES[number], 10 * PLACES[number]]))
        np.testing.assert_array_equal(by_user.total(), [[0, 1, 2, 3, 4], [0, 10, 20, 30, 40]])


def test_several_arrays_stay_several() -> None:
    by_user = ByUser(PLACES)
    for number in (1, 0, 2):
        by_user.give(number, (PLACES[number], PLACES[number] / 2))
    whole, half = by_user.total()
    assert whole.dtype == np.int64
    assert half.dtype == np.float64
    np.testing.assert_array_equal(half, whole / 2)


def test_the_first_block_does_not_decide_the_type() -> None:
    totals = []
    for order in permutations(range(3)):
        by_user = ByUser(PLACES)
        for number in order:
            kind = np.float64 if number == 1 else np.int64
            by_user.give(number, (PLACES[number] + (0.5 if number == 1 else 0)).astype(kind))
        totals.append(by_user.total())
    for total in totals:
        assert total.dtype == np.float64
        np.testing.assert_array_equal(total, [0, 1, 2, 3, 4.5])


def test_pairs_are_gathered_apart() -> None:
    pairs = Both(InList(3), TreeSum(3))
    for number in (2, 0, 1):
        pairs.give(number, (f"block {number}", 10.0**number))
    assert pairs.total() == (["block 0", "block 1", "block 2"], 111.0)
