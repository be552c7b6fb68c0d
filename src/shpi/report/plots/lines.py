"""Lines over a common axis, with bands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from shpi.errors import ConfigError
from shpi.protocols import Float64Array
from shpi.report.plots.axes import Scale, bottom_axis, left_axis, tick_room
from shpi.report.plots.canvas import Canvas
from shpi.report.plots.legend import Key, legend, symbol
from shpi.report.plots.theme import SERIES

DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 4", "5 2", "1 2", "9 2 2 2 2 2")  # not only colours differ

Values = Sequence[float] | Float64Array


def lines(
    x: Values,
    series: Mapping[str, Values],
    *,
    title: str,
    description: str = "",
    bands: Mapping[str, tuple[Values, Values]] | None = None,
    log_x: bool = False,
    log_y: bool = False,
    zero: bool = False,
    reference: Mapping[str, float] | None = None,
    dots: bool = False,
    x_label: str = "",
    y_label: str = "",
    width: float = 680,
    height: float = 280,
) -> str:
    """Lines with a legend; gaps where a value is not finite.

    Args:
        x: x coordinates of the values, increasing.
        series: name -> values, one per x.
        title: for screen readers and as a tooltip.
        description: for screen readers.
        bands: name of a series -> lower and upper values, drawn as a faint area.
        log_x: a logarithmic axis; x must be positive.
        log_y: a logarithmic axis; what is not positive is left out.
        zero: whether the vertical axis must include 0.
        reference: name -> y of a dashed horizontal line.
        dots: mark every value.
        x_label: below the axis.
        y_label: above the axis.
        width: width of the sheet in px.
        height: height of the plotting area in px.
    """
    at = np.asarray(x, dtype=np.float64)
    data = {name: np.asarray(values, dtype=np.float64) for name, values in series.items()}
    _check(at, data, log_x)
    areas = {name: np.asarray(pair, dtype=np.float64) for name, pair in (bands or {}).items()}
    levels = dict(reference or {})
    canvas = Canvas(width)
    sign = partial(symbol, shape="dotted line" if dots else "line")
    keys = [
        Key(name=name, draw=partial(sign, cls=f"c{j % SERIES}", dash=DASHES[j % SERIES]))
        for j, name in enumerate(data)
    ]
    level = partial(symbol, shape="line", cls="ink", dash="4 3", width=1.4)
    keys += [Key(name=name, draw=level) for name in levels]
    top = legend(canvas, keys if len(keys) > 1 else [], 4) + (24 if y_label else 10)
    bottom = top + height
    shown = [*data.values(), *(side for pair in areas.values() for side in pair)]
    heights = [float(number) for values in shown for number in values] + list(levels.values())
    up = Scale.over([*heights, *([0.0] if zero else [])], bottom, top, log=log_y, many=5, room=0.04)
    along = Scale.over(at, tick_room(up), canvas.width - 14, log=log_x)
    left_axis(canvas, up, along.start, along.end, y_label)
    end = bottom_axis(canvas, along, bottom, bottom, x_label)
    for j, name in enumerate(data):
        if name in areas:
            low, high = areas[name]
            _band(canvas, at, low, high, along, up, f"c{j % SERIES}")
    for value in levels.values():
        canvas.line(along.start, up(value), along.end, up(value), cls="ink", width=1.4, dash="4 3")
    for j, values in enumerate(data.values()):
        _line(canvas, at, values, along, up, j, dots)
    return canvas.svg(end, title, description)


def _check(at: Float64Array, data: Mapping[str, Float64Array], log: bool) -> None:
    rising = len(at) > 0 and bool(np.isfinite(at).all()) and bool((np.diff(at) > 0).all())
    if (
        not data
        or not rising
        or (log and at[0] <= 0)
        or any(len(values) != len(at) for values in data.values())
    ):
        raise ConfigError(
            expected="rising finite x (positive on a logarithmic axis) and series of the same length",
            found=f"{len(at)} x, series of {[len(values) for values in data.values()]}",
            where="lines",
        )


def _runs(log: bool, *columns: Float64Array) -> list[list[int]]:
    """Runs of consecutive points that can be drawn: finite in all columns, and positive if ``log``."""
    runs: list[list[int]] = [[]]
    for index, values in enumerate(zip(*columns, strict=True)):
        if all(math.isfinite(value) and (value > 0 or not log) for value in values):
            runs[-1].append(index)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _line(
    canvas: Canvas, at: Float64Array, values: Float64Array, along: Scale, up: Scale, index: int, dots: bool
) -> None:
    cls = f"c{index % SERIES}"
    for run in _runs(up.log, values):
        points = [(along(float(at[i])), up(float(values[i]))) for i in run]
        if len(points) > 1:
            canvas.path(points, closed=False, cls=cls, width=2.2, dash=DASHES[index % SERIES])
        if dots or len(points) == 1:
            for x, y in points:
                canvas.dot(x, y, 3, cls=cls)


def _band(
    canvas: Canvas, at: Float64Array, low: Float64Array, high: Float64Array, along: Scale, up: Scale, cls: str
) -> None:
    for run in _runs(up.log, low, high):
        there = [(along(float(at[i])), up(float(high[i]))) for i in run]
        back = [(along(float(at[i])), up(float(low[i]))) for i in reversed(run)]
        canvas.path([*there, *back], cls=cls, fill=True, opacity=0.16)
