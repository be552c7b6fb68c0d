"""The legend above a chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from shpi.report.plots.canvas import SIZE, Canvas, shortened, text_width

Draw = Callable[[Canvas, float, float], None]  # draws at x (left end of a 20 px wide space) and y (middle)
Shape = Literal["box", "line", "dotted line", "diamond", "dot", "tick"]


@dataclass(frozen=True, kw_only=True)
class Key:
    """One entry: a name, and how its symbol is drawn."""

    name: str
    draw: Draw


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
        key.draw(canvas, x, y - 4)
        canvas.text(x + 26, y, key.name, most=canvas.width - left - 30, size=SIZE)
        x += width
    return y + 12


def symbol(
    canvas: Canvas,
    x: float,
    y: float,
    *,
    shape: Shape,
    cls: str,
    hollow: bool = False,
    opacity: float = 1.0,
    dash: str = "",
    width: float = 2.2,
) -> None:
    """Draw the symbol of a `Key`; the other settings are for the shapes that have them."""
    if shape == "box":
        canvas.rect(x + 3, y - 6, 14, 12, cls=cls, opacity=opacity)
    elif shape == "diamond":
        canvas.diamond(x + 10, y, cls=cls, hollow=hollow)
    elif shape == "dot":
        canvas.dot(x + 10, y, 5.0, cls=cls)
    elif shape == "tick":
        canvas.line(x + 10, y - 7, x + 10, y + 7, cls=cls, width=2.5)
    else:
        canvas.line(x, y, x + 20, y, cls=cls, dash=dash, width=width)
        if shape == "dotted line":
            canvas.dot(x + 10, y, 3, cls=cls)
