"""Scales with round ticks."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shpi.protocols import Float64Array
from shpi.report.numbers import MINUS, number
from shpi.report.plots.canvas import SMALL, Canvas, text_width


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Maps numbers to pixels, linearly or logarithmically; values outside are put on the edge."""

    low: float
    high: float
    start: float  # pixel of low
    end: float  # pixel of high
    log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high, here = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, here = math.log10(low), math.log10(high), math.log10(here)
        share = (here - low) / (high - low)
        return self.start + (self.end - self.start) * share

    def inside(self, value: float) -> bool:
        """Whether a value is within the limits."""
        return self.low <= value <= self.high

    @classmethod
    def over(
        cls,
        values: Iterable[float] | Float64Array,
        start: float,
        end: float,
        *,
        log: bool = False,
        many: int | None = None,
        room: float = 0.0,
    ) -> Scale:
        """A scale over all values that can be drawn: below 1e300, and positive if ``log``.

        Args:
            values: values that must be inside.
            start: pixel of the lower end.
            end: pixel of the upper end.
            log: whether the scale is logarithmic.
            many: approximate number of ticks; None: as many as fit on a horizontal axis.
            room: share of the width to leave free at both ends.
        """
        known = np.asarray(
            [value for value in values if abs(value) < 1e300 and (value > 0 or not log)], dtype=float
        )
        if not len(known):
            known = np.array([0.1, 1.0]) if log else np.array([0.0, 1.0])
        low, high = float(known.min()), float(known.max())
        if log:
            low, high = (min(max(end, 1e-140), 1e140) for end in (low, high))  # their ratio is finite
        wanted = many or max(3, int(abs(end - start) / 85))
        if log:
            free = (high / low) ** room
            low, high = low / free, high * free
            if high < low * 1.001:
                low, high = low / 3, high * 3
            return cls(low=low, high=high, start=start, end=end, log=True, ticks=log_ticks(low, high, wanted))
        span = high - low
        if not span > 1e-9 * max(abs(low), abs(high)):
            half = 0.5 * max(abs(low), abs(high)) or 0.5
            low, high = low - half, high + half
        elif room:
            low, high = low - room * span, high + room * span
        return cls(low=low, high=high, start=start, end=end, ticks=round_ticks(low, high, wanted))


def log_ticks(low: float, high: float, many: int) -> tuple[tuple[float, str], ...]:
    """About ``many`` powers of ten within the limits; 2 and 5 times them too where there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    whole = [10.0**p for p in powers if low * 0.999 <= 10.0**p <= high * 1.001]
    if len(whole) >= 3:
        every = math.ceil(len(whole) / many)
        first = next((i % every for i, tick in enumerate(whole) if abs(tick - 1) < 1e-12), 0)  # 1 is a tick
        return tuple((tick, number(tick, 1)) for tick in whole[first::every])
    for factors in ((1, 3), (1, 2, 5), (1, 2, 3, 4, 5, 6, 7, 8, 9)):
        ticks = [f * 10.0**p for p in powers for f in factors if low * 0.999 <= f * 10.0**p <= high * 1.001]
        if len(ticks) >= 3:
            return tuple((tick, number(tick, 1)) for tick in ticks)
    return tuple((tick, number(tick, 3)) for tick in (low, high))


def round_ticks(low: float, high: float, many: int) -> tuple[tuple[float, str], ...]:
    """About ``many`` round numbers within the limits, with labels that tell them apart."""
    raw = (high - low) / max(many, 1)
    if raw < sys.float_info.min:  # the limits are nearly equal, and their difference has no logarithm
        return ((low, number(low, 6)), (high, number(high, 6)))
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if last - first > 50:  # the step is lost in rounding: the limits are nearly equal
        return ((low, number(low, 6)), (high, number(high, 6)))
    values = [index * step for index in range(first, last + 1)]
    largest = max((abs(value) for value in values), default=0.0)
    if largest >= 1e6 or (0 < largest < 1e-3):
        digits = 1 + max(0, round(math.log10(largest / step)) if largest else 0) + 1
        return tuple((value, _tidy(number(value, min(digits, 9)))) for value in values)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6:
        decimals += 1
    return tuple(
        (value, f"{value + 0.0:,.{decimals}f}".replace("-", MINUS) if value else "0") for value in values
    )


def _tidy(label: str) -> str:
    """1e6 instead of 1.00e6."""
    mantissa, e, exponent = label.partition("e")
    if "." in mantissa and e:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}{e}{exponent}"


def bottom_axis(canvas: Canvas, scale: Scale, top: float, bottom: float, label: str = "") -> float:
    """Grid lines, tick labels and a label below; returns where the axis ends, in px."""
    reach = -math.inf  # right end of the last label: a tick whose label would overlap it is left out
    for value, words in scale.ticks:
        x, half = scale(value), text_width(words, SMALL) / 2
        if x - half >= reach:
            reach = x + half + 6
            canvas.line(x, top, x, bottom, cls="grid")
            canvas.text(x, bottom + 17, words, anchor="middle", cls="soft", size=SMALL)
    canvas.line(scale.start, bottom, scale.end, bottom)
    end = bottom + 24
    if label:
        middle = (scale.start + scale.end) / 2
        reach = 2 * min(middle, canvas.width - middle)
        canvas.text(middle, bottom + 37, label, anchor="middle", cls="soft", size=SMALL, most=reach)
        end = bottom + 45
    return end


def left_axis(canvas: Canvas, scale: Scale, left: float, right: float, label: str = "") -> None:
    """Grid lines and tick labels at the left; the label stands above the axis."""
    for value, words in scale.ticks:
        y = scale(value)
        canvas.line(left, y, right, y, cls="grid")
        canvas.text(left - 6, y + 4, words, anchor="end", cls="soft", size=SMALL)
    if label:
        canvas.text(2, min(scale.start, scale.end) - 10, label, cls="soft", size=SMALL, most=canvas.width - 4)


def tick_room(scale: Scale) -> float:
    """The width of the labels of a left axis, in px."""
    return max((text_width(words, SMALL) for _, words in scale.ticks), default=0.0) + 10
