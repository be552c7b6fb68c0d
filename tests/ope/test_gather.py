"""Results of blocks are gathered alike, whichever block arrives first."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from shpi.data.logged import LoggedData
from shpi.ope._log.gather import ByUser, InList
from shpi.ope._log.visits import Visits
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


def test_a_request_with_two_collectors_gets_both_totals() -> None:
    rng = np.random.default_rng(0)
    logs = LoggedData.from_arrays(
        contexts=rng.normal(size=(40, 1)), actions=rng.integers(0, 2, 40), rewards=rng.random(40),
        propensities=np.full(40, 0.5), offsets=np.arange(0, 41, 2), n_actions=2,
    )  # fmt: skip
    names, total = Visits(logs, None).ask(
        None, lambda block: (f"{len(block)} rows", 1.0), InList(1), TreeSum(1)
    )
    assert names == ["40 rows"]
    assert total == 1.0
