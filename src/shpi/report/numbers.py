"""Numbers as readers see them: few digits, a true minus sign, no "nan"."""

from __future__ import annotations

import math

MINUS = "\N{MINUS SIGN}"
NOTHING = "\N{EN DASH}"  # shown for a missing number


def number(value: float | None, digits: int = 3) -> str:
    """A number with about ``digits`` significant digits; 12,345 and 1.23e9 rather than long tails."""
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "\N{INFINITY}" if value > 0 else f"{MINUS}\N{INFINITY}"
    if value == 0:
        return "0"
    size = abs(float(f"{value:.{digits - 1}e}"))  # rounded first, so that 999.9 does not become 1e+03
    if 1e-4 <= size < 1e7:
        decimals = max(0, digits - 1 - math.floor(math.log10(size)))
        text = f"{abs(value):,.{decimals}f}"
    else:
        mantissa, exponent = f"{abs(value):.{digits - 1}e}".split("e")
        text = f"{mantissa}e{int(exponent)}".replace("-", MINUS)
    return f"{MINUS}{text}" if value < 0 else text


def signed(value: float | None, digits: int = 3) -> str:
    """Like `number`, with a plus sign before positive numbers."""
    text = number(value, digits)
    return f"+{text}" if value is not None and value > 0 else text


def percent(value: float | None, digits: int = 3, *, sign: bool = False) -> str:
    """A share, such as 0.123, as 12.3 %."""
    if value is None or math.isnan(value):
        return NOTHING
    shown = signed(100 * value, digits) if sign else number(100 * value, digits)
    return f"{shown}\N{NO-BREAK SPACE}%"


def level(value: float) -> str:
    """A confidence level, such as 95 %, without trailing zeros."""
    return f"{100 * value:g}\N{NO-BREAK SPACE}%"


def count(value: float | None) -> str:
    """An integer with thousands separators; a small non-integer keeps two digits."""
    if value is None or not math.isfinite(value) or (value != round(value) and abs(value) < 10):
        return number(value, 2)
    return f"{value:,.0f}".replace("-", MINUS)
