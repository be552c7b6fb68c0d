"""Durations as people write them: "90s", "30m", "36h", "7d", "2w", and sums such as "1d12h".

A log whose times are timestamps (``time_unit="us"``) counts microseconds; a log whose times are plain
numbers (``time_unit="step"``) counts in its own unit, and there a duration is a plain number.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal

from shpi.errors import ConfigError

Duration = str | int | float | timedelta

MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60 * 1_000_000,
    "h": 3_600 * 1_000_000,
    "d": 86_400 * 1_000_000,
    "w": 7 * 86_400 * 1_000_000,
}
LONGEST = 2**62  # microseconds: adding a duration to a timestamp must stay within int64
_PART = r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)"
_WHOLE = re.compile(rf"\s*(?:{_PART}\s*)+")
_REMEDY = "write a number and a unit, such as '90s', '30m', '36h', '7d' or '2w'"


def parse_duration(text: str | timedelta) -> int:
    """The microseconds of a positive duration with a unit.

    >>> parse_duration("30m")
    1800000000
    >>> parse_duration("1d12h") == parse_duration("36h")
    True
    """
    if isinstance(text, timedelta):
        total = text // timedelta(microseconds=1)
    elif isinstance(text, str) and _WHOLE.fullmatch(text.lower()):
        total = sum(round(float(n) * MICROSECONDS[unit]) for n, unit in re.findall(_PART, text.lower()))
    else:
        raise ConfigError(expected="a duration", found=repr(text), remedy=_REMEDY)
    return int(_checked(total, text))


def in_time_unit(value: Duration, unit: Literal["us", "step"]) -> int | float:
    """A duration in the unit of a log's times: microseconds, or the log's own plain numbers."""
    if isinstance(value, str | timedelta):
        if unit == "step":
            raise ConfigError(
                expected="a plain number, because this log's times are plain numbers and not timestamps",
                found=repr(value),
                remedy="say what they count, e.g. time_unit = 'ms' in the column map, or give the duration "
                "as a number in the unit of the time column",
            )
        return parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(expected="a duration", found=repr(value), remedy=_REMEDY)
    return _checked(value, value)


def _checked(total: int | float, given: object) -> int | float:
    if not 0 < total <= LONGEST:  # False for NaN too
        raise ConfigError(
            expected="a duration above 0 and below 146,000 years", found=repr(given), remedy=_REMEDY
        )
    return total


def describe(microseconds: float) -> str:
    """A duration in words, in the largest unit that fits, e.g. ``"13.8 days"``."""
    for unit, word in (("d", "day"), ("h", "hour"), ("m", "minute"), ("s", "second")):
        amount = microseconds / MICROSECONDS[unit]
        if abs(amount) >= 1 or unit == "s":
            text = f"{amount:,.1f}".removesuffix(".0")
            return f"{text} {word}" if text == "1" else f"{text} {word}s"
    raise AssertionError("unreachable: seconds always fit")
