"""Small figures made of text: bars of shares, and the calibration of a behaviour policy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shpi.data._behaviour.calibration import Calibration

BAR = 24  # characters of a full bar
HALF = 10  # characters from the middle to a factor of 2
FEW = 5  # expected choices below which a bin says nothing


def share_bar(share: float, width: int = BAR) -> str:
    """A bar of fixed width whose filled part is the share."""
    halves = round(2 * width * share)
    filled = "█" * (halves // 2) + "▌" * (halves % 2)
    return (filled or "▏" * (share > 0)).ljust(width)


def calibration_figure(calibration: Calibration) -> Iterator[str]:
    """One line per bin: predicted probability, observed frequency, and their ratio as a bar.

    The middle is "as often as predicted"; a bar to the right (left) means chosen more (less) often, and
    the edges are a factor of 2. z is shown where the gap exceeds two standard errors.
    """
    scale = f"{'÷2':<{HALF}}│{'×2':>{HALF}}"
    yield f"{'predicted':>9}  {'chosen':>8}  {scale}  {'pairs':>11}"
    for b in calibration.bins:
        bar = _deviation(b.observed, b.predicted)
        if b.predicted * b.count < FEW:
            bar = "(too few to tell)".center(2 * HALF + 1)
        sure = "" if abs(b.z) < 2 else f"  z = {b.z:+.1f}"
        yield f"{b.predicted:9.3%}  {b.observed:8.3%}  {bar}  {b.count:>11,}{sure}"


def _deviation(observed: float, predicted: float) -> str:
    """A bar from the middle, on a logarithmic scale."""
    ratio = math.log2(observed / predicted) if observed > 0 else -1.0
    steps = max(-HALF, min(HALF, round(HALF * ratio)))
    left, right = "█" * max(-steps, 0), "█" * max(steps, 0)
    return f"{left:>{HALF}}│{right:<{HALF}}"
