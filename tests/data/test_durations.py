from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shpi.data.durations import describe, in_time_unit, parse_duration
from shpi.errors import ConfigError

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1_800),
        ("36h", 129_600),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("1d12h", 129_600),
        (" 1.5 h ", 5_400),
        ("7D", 604_800),
        (timedelta(minutes=2), 120),
    ],
)
def test_a_duration_is_microseconds(text: str | timedelta, seconds: int) -> None:
    assert parse_duration(text) == seconds * SECOND


def test_the_small_units() -> None:
    assert parse_duration("5ms") == 5_000
    assert parse_duration("5us") == 5


@given(st.integers(1, 10_000), st.sampled_from("smhdw"))
def test_a_duration_agrees_with_timedelta(number: int, unit: str) -> None:
    word = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}[unit]
    assert parse_duration(f"{number}{unit}") == parse_duration(timedelta(**{word: number}))


@pytest.mark.parametrize("text", ["", "7", "d", "7 fortnights", "-3d", "0s", "7d!", "1e3s", "999999999999w"])
def test_a_bad_duration_is_an_error_that_shows_good_ones(text: str) -> None:
    with pytest.raises(ConfigError, match="'30m'"):
        parse_duration(text)


def test_plain_numbers_count_in_the_unit_of_the_log() -> None:
    assert in_time_unit(20, "step") == 20
    assert in_time_unit(20, "us") == 20
    assert in_time_unit("2s", "us") == 2 * SECOND


def test_a_unit_has_no_meaning_in_a_log_of_steps() -> None:
    with pytest.raises(ConfigError, match="plain number"):
        in_time_unit("7d", "step")


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, None])
def test_a_bad_number_is_an_error(value: object) -> None:
    with pytest.raises(ConfigError, match="a duration"):
        in_time_unit(value, "step")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (86_400, "1 day"),
        (1_192_320, "13.8 days"),
        (1_800, "30 minutes"),
        (0.5, "0.5 seconds"),
        (0, "0 seconds"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert describe(seconds * SECOND) == words
