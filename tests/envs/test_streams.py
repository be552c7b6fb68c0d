from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shpi.envs.streams import Streams
from shpi.errors import ConfigError

N = 100_000
USERS = np.arange(N)
Z = 4.5  # standard errors: a right generator fails a single check once in 150,000 times


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a, b)[0, 1] * np.sqrt(len(a)))  # in standard errors


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**100])
def test_numbers_are_uniform_and_inside_the_open_interval(seed: int) -> None:
    u = Streams(seed, USERS).uniform(3, 7)
    assert u.min() > 0
    assert u.max() < 1
    assert stats.kstest(u, "uniform").pvalue > 1e-5
    for power in range(1, 5):
        error = (u**power).mean() - 1 / (power + 1)
        assert abs(error) < Z * np.sqrt(1 / (2 * power + 1) / N)


def test_one_user_along_the_counter_is_uniform_too() -> None:
    counters = np.arange(N)
    u = Streams(5, np.full(N, 42)).uniform(1, counters)
    assert stats.kstest(u, "uniform").pvalue > 1e-5
    assert abs(correlation(u[:-1], u[1:])) < Z


def test_normal_numbers_are_normal() -> None:
    z = Streams(0, USERS).normal(0, 0)
    assert stats.kstest(z, "norm").pvalue > 1e-5
    assert abs(z.mean()) < Z / np.sqrt(N)
    assert abs(z.var() - 1) < Z * np.sqrt(2 / N)
    assert abs((z**4).mean() - 3) < Z * np.sqrt(96 / N)


def test_neighbouring_addresses_are_unrelated() -> None:
    base = Streams(0, USERS).uniform(1, 10)
    others = {
        "user": Streams(0, USERS + 1).uniform(1, 10),
        "counter": Streams(0, USERS).uniform(1, 11),
        "label": Streams(0, USERS).uniform(2, 10),
        "seed": Streams(1, USERS).uniform(1, 10),
        "column": Streams(0, USERS).uniform(1, 10, 3)[:, 2],
    }
    for name, other in others.items():
        assert abs(correlation(base, other)) < Z, name
        assert abs(correlation(np.abs(base - 0.5), np.abs(other - 0.5))) < Z, name


def test_columns_are_unrelated_to_each_other() -> None:
    u = Streams(0, USERS[:20_000]).normal(1, 0, 12)
    off = np.corrcoef(u.T)[np.triu_indices(12, 1)] * np.sqrt(20_000)
    assert np.abs(off).max() < Z
    assert stats.kstest(u.ravel(), "norm").pvalue > 1e-5


def test_pairs_fill_the_square_evenly() -> None:
    s = Streams(9, USERS)
    a, b = s.uniform(1, 0), s.uniform(1, 1)
    counts = np.histogram2d(a, b, bins=20)[0].ravel()
    assert stats.chisquare(counts).pvalue > 1e-5


def test_no_two_addresses_share_a_number() -> None:
    users = np.arange(20_000)
    draws = [
        Streams(seed, users).uniform(label, counter)
        for seed in (0, 1)
        for label in (0, 1, 2)
        for counter in (0, 1, 2, 1000)
    ]
    draws.append(Streams(0, users).uniform(0, 0, 6).ravel())
    numbers = np.concatenate(draws)
    assert len(np.unique(numbers)) == len(numbers)


@given(
    st.integers(0, 2**40),
    st.lists(st.integers(0, 2**50), min_size=1, max_size=40),
    st.integers(0, 2**24),
    st.integers(0, 2**33),
    st.integers(0, 5),
    st.data(),
)
def test_a_number_depends_on_its_own_address_alone(
    seed: int, users: list[int], label: int, counter: int, width: int, data: st.DataObject
) -> None:
    ids = np.array(users)
    whole = Streams(seed, ids)
    index = data.draw(st.lists(st.integers(0, len(users) - 1), min_size=1, max_size=10))
    taken, direct = whole.take(np.array(index)), Streams(seed, ids[index])
    own = np.full(len(index), counter)
    for columns in (None, width):
        expected = whole.uniform(label, counter, columns)[index]
        for streams in (taken, direct):
            assert np.array_equal(streams.uniform(label, counter, columns), expected)
            assert np.array_equal(streams.uniform(label, own, columns), expected)


def test_split_invariance_across_the_blocks_of_the_implementation() -> None:
    users = np.arange(30_000)
    whole = Streams(3, users)
    parts = [Streams(3, users[low : low + 777]) for low in range(0, 30_000, 777)]
    counters = users % 11
    assert np.array_equal(
        whole.uniform(1, counters),
        np.concatenate([streams.uniform(1, streams.users % 11) for streams in parts]),
    )
    assert np.array_equal(
        whole.normal(1, 4, 3), np.concatenate([streams.normal(1, 4, 3) for streams in parts])
    )


def test_the_numbers_stay_what_they_are() -> None:
    # Written down once: another formula would silently change every simulated log.
    u = Streams(0, np.array([0, 1, 2**40])).uniform(1, 2)
    expected = [0.22343340430545056, 0.06955647682054555, 0.18163383720632897]
    assert u.tolist() == expected


@pytest.mark.parametrize("seed", [-1, 1.5, "7", None, True])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    with pytest.raises(ConfigError, match="seed that is a whole number >= 0"):
        Streams(seed, USERS[:3])  # type: ignore[arg-type]


def test_counters_must_match_the_users() -> None:
    with pytest.raises(ConfigError, match="one integer counter, or 3 of them"):
        Streams(0, USERS[:3]).uniform(0, np.arange(4))
    with pytest.raises(ConfigError, match="dtype float64"):
        Streams(0, USERS[:3]).uniform(0, np.zeros(3))  # type: ignore[arg-type]


def test_users_are_one_row() -> None:
    with pytest.raises(ConfigError, match=r"users of shape \[n\]"):
        Streams(0, np.zeros((2, 2), dtype=np.int64))
