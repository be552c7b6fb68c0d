import math

import pytest

from shpi.report.numbers import count, number, percent, signed


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (1.0, "1.00"),
        (-12.345, "−12.3"),
        (999.96, "1,000"),
        (123456.7, "123,457"),
        (1.234e9, "1.23e9"),
        (-4.2e-7, "−4.20e−7"),
        (0.000999999, "0.00100"),
        (math.nan, "–"),
        (None, "–"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
    ],
)
def test_numbers_are_short_and_never_nan(value, shown):
    assert number(value) == shown


def test_signs_shares_and_counts():
    assert signed(0.5) == "+0.500"
    assert signed(-0.5) == "−0.500"
    assert signed(0.0) == "0"
    assert percent(0.1234) == "12.3\N{NO-BREAK SPACE}%"
    assert percent(-0.02, sign=True) == "−2.00\N{NO-BREAK SPACE}%"
    assert percent(math.nan) == "–"
    assert count(1234567.0) == "1,234,567"
    assert count(math.nan) == "–"
    assert count(0.757) == "0.76"
    assert count(130.4) == "130"
