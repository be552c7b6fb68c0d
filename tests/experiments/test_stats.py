"""Statistics over trials against closed forms."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shpi.errors import DataError
from shpi.experiments._page.stats import (
    interquartile_mean,
    middle_interval,
    paired,
    probability_of_best,
    summarise,
)

numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)


def test_summary_of_known_numbers() -> None:
    summary = summarise([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 103.0])
    assert summary.n == 8
    assert summary.mean == 15.5
    assert summary.deviation == pytest.approx(np.std([0, 1, 2, 3, 4, 5, 6, 103], ddof=1))
    assert summary.interquartile_mean == 3.5  # of 2, 3, 4, 5: the outlier does not count
    assert summary.low <= summary.interquartile_mean <= summary.high


def test_one_trial_has_no_spread() -> None:
    assert summarise([7.0]) == (1, 7.0, 0.0, 7.0, 7.0, 7.0)


@given(numbers, st.floats(-100, 100), st.floats(0.1, 10))
def test_middle_moves_with_shift_and_scale(values: list[float], shift: float, scale: float) -> None:
    x = np.array(values)
    moved = interquartile_mean(scale * x + shift)
    assert moved == pytest.approx(scale * interquartile_mean(x) + shift, rel=1e-9, abs=1e-6)
    assert x.min() - 1e-6 <= interquartile_mean(x) <= x.max() + 1e-6


def test_interval_covers_the_middle_of_normal_trials() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        low, high = middle_interval([rng.normal(size=30)], resamples=300, seed=trial)
        hits += low <= 0 <= high
    assert 0.86 <= hits / 200 <= 0.99  # percentile intervals of 30 trials are a little short of 95 %


def test_strata_keep_their_number_of_trials() -> None:
    # Two worlds without any spread inside: a stratified resample is always the same.
    low, high = middle_interval([np.zeros(10), np.ones(10)])
    assert low == high == 0.5


def test_the_one_that_always_wins_is_best() -> None:
    rng = np.random.default_rng(1)
    common = rng.normal(size=10) * 100  # noise that pairs share
    best = probability_of_best({"a": common + 1, "b": common, "c": common - 1})
    assert best == {"a": 1.0, "b": 0.0, "c": 0.0}


def test_equals_share_and_shares_sum_to_one() -> None:
    x = np.arange(5.0)
    assert probability_of_best({"a": x, "b": x}) == {"a": 0.5, "b": 0.5}
    rng = np.random.default_rng(2)
    shares = probability_of_best({name: rng.normal(size=8) for name in "abcd"})
    assert sum(shares.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("n", [1, 3, 6, 10])
def test_all_pairs_won_has_the_smallest_p(n: int) -> None:
    comparison = paired(np.arange(1.0, n + 1), np.zeros(n))
    assert comparison.p == pytest.approx(0.5**n)
    assert comparison.wins == 1.0
    assert comparison.difference == pytest.approx((n + 1) / 2)


def test_exact_p_equals_enumeration() -> None:
    d = np.array([3.0, -1.0, 2.0, 0.5, -0.2])
    sums = [float(np.dot(signs, d)) for signs in product((-1, 1), repeat=5)]
    expected = np.mean([total >= d.sum() - 1e-12 for total in sums])
    assert paired(d, np.zeros(5)).p == pytest.approx(expected)


def test_many_pairs_are_sampled_and_the_test_holds_its_level() -> None:
    rng = np.random.default_rng(3)
    small = [paired(rng.normal(size=20), rng.normal(size=20), resamples=500).p <= 0.05 for _ in range(300)]
    assert 0.01 <= np.mean(small) <= 0.09


def test_no_difference_is_no_evidence() -> None:
    assert paired(np.ones(4), np.ones(4)) == (4, 0.0, 0.5, 1.0)


def test_numbers_that_are_not_finite_are_refused() -> None:
    with pytest.raises(DataError, match="one finite number per trial"):
        summarise([1.0, float("nan")])
    with pytest.raises(DataError, match="one finite number per trial"):
        summarise([])
