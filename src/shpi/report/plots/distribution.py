"""Histograms from counts, and boxplots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from shpi.errors import ConfigError
from shpi.protocols import Float64Array
from shpi.report.plots.axes import Scale, bottom_axis, left_axis, tick_room
from shpi.report.plots.canvas import SMALL, Canvas, text_width
from shpi.report.plots.legend import Key, legend, symbol
from shpi.report.plots.rows import Rows, same_length


def histogram(
    edges: Sequence[float] | Float64Array,
    series: Mapping[str, Sequence[float] | Float64Array],
    *,
    title: str,
    description: str = "",
    log_x: bool = False,
    marks: Mapping[str, float] | None = None,
    x_label: str = "",
    y_label: str = "",
    width: float = 680,
    height: float = 240,
) -> str:
    """A histogram of one series, or of several overlaid.

    Args:
        edges: edges of the bins, rising, one more than counts; positive if ``log_x``.
        series: name -> counts or shares per bin.
        title: for screen readers and as a tooltip.
        description: for screen readers.
        log_x: a logarithmic axis.
        marks: name -> position of a dashed vertical line.
        x_label: below the axis.
        y_label: above the axis.
        width: width of the sheet in px.
        height: height of the plotting area in px.
    """
    bins = np.asarray(edges, dtype=np.float64)
    _check_bins(bins, series, log_x)
    canvas = Canvas(width)
    several = len(series) > 1
    box = partial(symbol, shape="box", opacity=0.45)
    keys = [Key(name=name, draw=partial(box, cls=f"c{j}")) for j, name in enumerate(series)]
    top = legend(canvas, keys if several else [], 4) + (24 if y_label else 8) + (16 if marks else 0)
    bottom = top + height
    tallest = max(float(np.max(counts)) for counts in series.values())
    y = Scale.over([0.0, tallest if tallest > 0 else 1.0], bottom, top, many=4)
    x = Scale.over(bins, tick_room(y), canvas.width - 12, log=log_x)
    left_axis(canvas, y, x.start, x.end)
    above = top - 10 - (16 if marks else 0)
    canvas.text(2, above, y_label, cls="soft", size=SMALL, most=canvas.width - 4)
    end = bottom_axis(canvas, x, bottom, bottom, x_label)
    for j, counts in enumerate(series.values()):
        heights = [0.0, *np.repeat(np.asarray(counts, dtype=np.float64), 2).tolist(), 0.0]
        outline = [(x(at), y(up)) for at, up in zip(np.repeat(bins, 2).tolist(), heights, strict=True)]
        canvas.path(outline, cls=f"c{j}", fill=True, opacity=0.35 if several else 0.75)
        canvas.path(outline[1:-1], closed=False, cls=f"c{j}", width=1.8)
    for name, value in (marks or {}).items():
        if x.inside(value):
            canvas.line(x(value), top - 6, x(value), bottom, cls="ink", width=1.4, dash="4 3")
            half = text_width(name, SMALL) / 2
            middle = min(max(x(value), half + 2), canvas.width - half - 2)
            canvas.text(middle, top - 10, name, anchor="middle", size=SMALL)
    return canvas.svg(end, title, description)


def _check_bins(bins: Float64Array, series: Mapping[str, Sequence[float] | Float64Array], log: bool) -> None:
    rising = len(bins) > 1 and bool((np.diff(bins) > 0).all()) and (not log or bins[0] > 0)
    fits = series and all(
        len(heights) == len(bins) - 1 and np.isfinite(heights).all() for heights in series.values()
    )
    if not rising or not fits:
        raise ConfigError(
            expected="rising edges (positive on a logarithmic axis) and finite counts, one fewer",
            found=f"{len(bins)} edges, counts of {[len(heights) for heights in series.values()]}",
            where="histogram",
        )


def boxplots(
    labels: Sequence[str],
    groups: Sequence[Sequence[float] | Float64Array],
    *,
    title: str,
    description: str = "",
    marks: Sequence[float | None] | None = None,
    mark_name: str = "mark",
    texts: Sequence[str] | None = None,
    reference: float | None = None,
    x_label: str = "",
    log_x: bool = False,
    points: bool = True,
    width: float = 680,
) -> str:
    """Horizontal boxplots: median, quartiles, whiskers to the last value within 1.5 box lengths.

    Args:
        labels: labels of the rows, from top to bottom.
        groups: the values of each row; what is not finite is left out.
        title: for screen readers and as a tooltip.
        description: for screen readers.
        marks: one further number per row (say, a published one) as a hollow diamond; None for none.
        mark_name: for the legend.
        texts: to the right of the rows.
        reference: position of a dashed vertical line.
        x_label: below the axis.
        log_x: a logarithmic axis; what is not positive is left out, box lengths are those of logarithms.
        points: draw every value if a group has at most 50; else those beyond the whiskers.
        width: width of the sheet in px; below 480 labels stand above their rows.
    """
    same_length(labels=labels, groups=groups, marks=marks)
    canvas = Canvas(width)
    diamond = partial(symbol, shape="diamond", cls="c1", hollow=True)
    keys = [] if marks is None else [Key(name=mark_name, draw=diamond)]
    rows = Rows.on(canvas, labels, texts, legend(canvas, keys, 4) + 4, 22)
    data = [np.asarray(group, dtype=np.float64) for group in groups]
    data = [sample[np.isfinite(sample) & ((sample > 0) | (not log_x))] for sample in data]
    extra = [float(sample) for sample in (marks or []) if sample is not None]
    known = [float(value) for values in data for value in values]
    scale = Scale.over(
        [*known, *extra, *([] if reference is None else [reference])],
        rows.left,
        rows.right,
        log=log_x,
        room=0.03,
    )
    end = bottom_axis(canvas, scale, rows.top, rows.bottom, x_label)
    if reference is not None:
        x = scale(reference)
        canvas.line(x, rows.top - 2, x, rows.bottom, cls="ink", width=1.2, dash="4 3")
    for index, values in enumerate(data):
        rows.write(canvas, index)
        if len(values):
            _box(canvas, scale, rows.middle(index), values, points)
        mark = None if marks is None else marks[index]
        if mark is not None and math.isfinite(mark):
            canvas.diamond(scale(mark), rows.middle(index), cls="c1", hollow=True)
    return canvas.svg(end, title, description)


def _box(canvas: Canvas, scale: Scale, y: float, values: Float64Array, points: bool) -> None:
    low, middle, high = (float(place) for place in np.quantile(values, [0.25, 0.5, 0.75]))
    shown = np.log(values) if scale.log else values
    ends = np.log([low, high]) if scale.log else np.array([low, high])
    reach = 1.5 * (ends[1] - ends[0])
    within = values[(shown >= ends[0] - reach) & (shown <= ends[1] + reach)]
    first, last = float(within.min()), float(within.max())
    for a, b in ((first, low), (high, last)):
        canvas.line(scale(a), y, scale(b), y, cls="c0", width=1.5)
    for place in (first, last):
        canvas.line(scale(place), y - 5, scale(place), y + 5, cls="c0", width=1.5)
    canvas.rect(scale(low), y - 9, max(scale(high) - scale(low), 1), 18, cls="c0", opacity=0.25, outline=True)
    canvas.line(scale(middle), y - 9, scale(middle), y + 9, cls="c0", width=3)
    outside = values[(values < first) | (values > last)]
    for place in values if points and len(values) <= 50 else outside[:200]:
        canvas.dot(scale(float(place)), y, 1.6, cls="c6")
