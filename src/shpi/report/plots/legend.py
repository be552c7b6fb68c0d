"""The legend above a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from shpi.report.plots.canvas import SIZE, Canvas, shortened, text_width


@dataclass(frozen=True, kw_only=True)
class Key:
    """One entry: a name and its symbol."""

    name: str
    shape: Literal["box", "line", "tick", "dot", "diamond"]
    cls: str
    opacity: float = 1.0  # of a box
    dash: str = ""  # of a line
    width: float = 2.2  # of a line
    dotted: bool = False  # a line with a dot on it
    hollow: bool = False  # a hollow diamond


def legend(canvas: Canvas, keys: Sequence[Key], top: float, left: float = 2.0) -> float:
    """Draw entries from left to right, in as many lines as they need; returns their lower end in px."""
    if not keys:
        return top
    x, y = left, top + 12
    for key in keys:
        name = shortened(key.name, canvas.width - left - 30)
        width = 26 + text_width(name) + 14
        if x > left and x + width > canvas.width:
            x, y = left, y + 20
        _symbol(canvas, key, x, y - 4)
        canvas.text(x + 26, y, key.name, most=canvas.width - left - 30, size=SIZE)
        x += width
    return y + 12


def _symbol(canvas: Canvas, key: Key, x: float, y: float) -> None:
    """Draw the symbol of an entry into a space 20 px wide: x is its left end, y its middle."""
    match key.shape:
        case "box":
            canvas.rect(x + 3, y - 6, 14, 12, cls=key.cls, opacity=key.opacity)
        case "line":
            canvas.line(x, y, x + 20, y, cls=key.cls, dash=key.dash, width=key.width)
            if key.dotted:
                canvas.dot(x + 10, y, 3, cls=key.cls)
        case "tick":
            canvas.line(x + 10, y - 7, x + 10, y + 7, cls=key.cls, width=2.5)
        case "dot":
            canvas.dot(x + 10, y, 5.0, cls=key.cls)
        case "diamond":
            canvas.diamond(x + 10, y, cls=key.cls, hollow=key.hollow)
