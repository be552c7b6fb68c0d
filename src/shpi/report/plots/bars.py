"""Horizontal bars, one or more per label."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from shpi.errors import ConfigError
from shpi.report.numbers import number
from shpi.report.plots.axes import Scale, bottom_axis
from shpi.report.plots.canvas import Canvas, text_width
from shpi.report.plots.legend import Key, legend, symbol
from shpi.report.plots.rows import Rows, same_length
from shpi.report.plots.theme import SERIES

_THICK = 14.0  # thickness of a bar in px


def bars(
    labels: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    title: str,
    description: str = "",
    errors: Mapping[str, Sequence[float]] | None = None,
    by_sign: bool = False,
    show: Callable[[float], str] = number,
    x_label: str = "",
    reference: float | None = None,
    width: float = 680,
) -> str:
    """Bars from 0, to the left where negative, with their numbers at the end.

    Args:
        labels: labels of the rows, from top to bottom.
        series: name -> one value per label. Several are drawn below each other, with a legend.
        title: for screen readers and as a tooltip.
        description: for screen readers.
        errors: name -> half the length of an error bar, per label.
        by_sign: colour bars of a single series by their sign; numbers should then show it too.
        show: how numbers are written.
        x_label: below the axis.
        reference: a dashed upright line besides 0.
        width: width of the sheet in px; below 480 labels stand above their rows.
    """
    if not series:
        raise ConfigError(expected="at least one series", found="none", where="bars")
    same_length(labels=labels, **{f"series {name!r}": values for name, values in series.items()})
    canvas = Canvas(width)
    classes = [f"c{j % SERIES}" for j in range(len(series))]
    keys = [
        Key(name=name, draw=partial(symbol, shape="box", cls=cls))
        for name, cls in zip(series, classes, strict=True)
    ]
    top = legend(canvas, keys if len(keys) > 1 else [], 4) + 4
    rows = Rows.on(canvas, labels, None, top, _THICK * len(series))
    table = {name: np.asarray(values, dtype=np.float64) for name, values in series.items()}
    spread = {name: np.asarray((errors or {}).get(name, np.zeros(len(labels)))) for name in series}
    ends = [x for name in table for x in (*(table[name] - spread[name]), *(table[name] + spread[name]))]
    scale = _scale([0.0, *ends, *([] if reference is None else [reference])], rows, table, show)
    end = bottom_axis(canvas, scale, rows.top, rows.bottom, x_label)
    canvas.line(scale(0.0), rows.top - 2, scale(0.0), rows.bottom, cls="ink", width=1.2)
    if reference is not None:
        x = scale(reference)
        canvas.line(x, rows.top - 2, x, rows.bottom, cls="ink", width=1.2, dash="4 3")
    for index in range(len(rows.labels)):
        rows.write(canvas, index)
        for j, name in enumerate(table):
            y = rows.middle(index) + _THICK * (j - (len(table) - 1) / 2)
            value = float(table[name][index])
            cls = classes[j] if not by_sign else "c2" if value >= 0 else "c4"
            _bar(canvas, scale, y, value, float(spread[name][index]), cls, show(value))
    return canvas.svg(end, title, description)


def _scale(
    values: list[float], rows: Rows, table: Mapping[str, np.ndarray], show: Callable[[float], str]
) -> Scale:
    """A scale with room for the numbers at the ends of the bars."""
    known = [value for value in values if math.isfinite(value)]
    widest = max(text_width(show(float(value))) for column in table.values() for value in column) + 8
    left = rows.left + (widest if min(known) < 0 else 0)
    right = rows.right - (widest if max(known) > 0 or min(known) == 0 else 0)
    if right - left < 60:
        left, right = rows.left, rows.right
    return Scale.over(known if len(set(known)) > 1 else [0.0, 1.0], left, right)


def _bar(canvas: Canvas, scale: Scale, y: float, value: float, error: float, cls: str, words: str) -> None:
    if not math.isfinite(value):
        canvas.text(scale(0.0) + 5, y + 4, words, cls="soft")
        return
    zero, x = scale(0.0), scale(value)
    canvas.rect(min(zero, x), y - _THICK / 2 + 1, max(abs(x - zero), 1.0), _THICK - 2, cls=cls)
    tip = x
    if error > 0 and math.isfinite(error):
        canvas.line(scale(value - error), y, scale(value + error), y, cls="ink", width=1.5)
        tip = scale(value + error) if value >= 0 else scale(value - error)
    if value < 0:
        canvas.text(tip - 5, y + 4.5, words, anchor="end", size=12)
    else:
        canvas.text(tip + 5, y + 4.5, words, size=12)
