"""Estimates with intervals, one row each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from shpi.protocols import Float64Array
from shpi.report.plots.axes import Scale, bottom_axis
from shpi.report.plots.canvas import Canvas
from shpi.report.plots.legend import Key, legend, symbol
from shpi.report.plots.rows import NARROW, Rows, same_length

_FAR = 6.0  # an interval this many times as wide as the median one does not stretch the axis


@dataclass(frozen=True, kw_only=True)
class ForestNames:
    """Words of the legend of a forest plot."""

    row: str = "estimate and interval"
    main: str = "decides"
    faint: str = "not to be relied on"
    round: str = "of another kind"
    bound: str = "one-sided lower bound"


def forest(
    labels: Sequence[str],
    centers: Sequence[float],
    lowers: Sequence[float],
    uppers: Sequence[float],
    *,
    title: str,
    description: str = "",
    bounds: Sequence[float] | None = None,
    main: int | None = None,
    faint: Sequence[bool] | None = None,
    round: Sequence[bool] | None = None,
    texts: Sequence[str] | None = None,
    short_texts: Sequence[str] | None = None,
    reference: float | None = 0.0,
    x_label: str = "",
    names: ForestNames | None = None,
    width: float = 680,
) -> str:
    """A forest plot: a diamond and a line per row; intervals beyond the axis end in an arrow.

    Args:
        labels: labels of the rows, from top to bottom.
        centers: the estimates; what is not finite is left out.
        lowers: lower ends of two-sided intervals; may be -inf.
        uppers: upper ends; may be inf.
        title: for screen readers and as a tooltip.
        description: for screen readers.
        bounds: one-sided lower bounds, drawn as vertical ticks.
        main: the row that decides: bold, in the first colour.
        faint: rows that should not be relied on: hollow, dashed.
        round: rows of another kind: a dot in place of a diamond.
        texts: to the right of the rows, such as the numbers.
        short_texts: in their place on narrow sheets.
        reference: position of a vertical line, such as 0; None for none.
        x_label: below the axis.
        names: words of the legend.
        width: width of the sheet in px; below 480 labels stand above their rows.
    """
    same_length(
        labels=labels, centers=centers, lowers=lowers, uppers=uppers, bounds=bounds, faint=faint, round=round
    )
    canvas = Canvas(width)
    weak = list(faint) if faint is not None else [False] * len(labels)
    dotted = list(round) if round is not None else [False] * len(labels)
    keys = _keys(names or ForestNames(), main is not None, any(weak), bounds is not None, any(dotted))
    notes = short_texts if short_texts is not None and width < NARROW else texts
    rows = Rows.on(canvas, labels, notes, legend(canvas, keys, 4) + 4, 18)
    middle, low, high = (np.asarray(sequence, dtype=np.float64) for sequence in (centers, lowers, uppers))
    floor = None if bounds is None else np.asarray(bounds, dtype=np.float64)
    scale = Scale.over(limits(middle, low, high, floor, main, reference), rows.left, rows.right, room=0.04)
    end = bottom_axis(canvas, scale, rows.top, rows.bottom, x_label)
    if reference is not None:
        canvas.line(scale(reference), rows.top - 2, scale(reference), rows.bottom, cls="ink", width=1.4)
    for index in range(len(rows.labels)):
        rows.write(canvas, index, bold=index == main)
        _whisker(canvas, scale, rows.middle(index), low[index], high[index], index == main, weak[index])
        if floor is not None and scale.inside(floor[index]):
            x, y = scale(floor[index]), rows.middle(index)
            canvas.line(x, y - 8, x, y + 8, cls="c1", width=2.5)
        if scale.inside(middle[index]):
            cls = "c0" if index == main else "c6"
            draw = canvas.dot if dotted[index] else canvas.diamond
            draw(scale(middle[index]), rows.middle(index), 5.0, cls=cls, hollow=weak[index])
    return canvas.svg(end, title, description)


def _keys(names: ForestNames, main: bool, weak: bool, bounds: bool, dotted: bool) -> list[Key]:
    diamond = partial(symbol, shape="diamond", cls="c6")
    keys = [Key(name=names.main, draw=partial(diamond, cls="c0"))] if main else []
    keys.append(Key(name=names.row, draw=diamond))
    keys += [Key(name=names.round, draw=partial(symbol, shape="dot", cls="c6"))] if dotted else []
    keys += [Key(name=names.faint, draw=partial(diamond, hollow=True))] if weak else []
    return keys + ([Key(name=names.bound, draw=partial(symbol, shape="tick", cls="c1"))] if bounds else [])


def limits(
    middle: Float64Array,
    low: Float64Array,
    high: Float64Array,
    floor: Float64Array | None,
    main: int | None,
    reference: float | None,
) -> list[float]:
    """Values that the axis must show: the main row, and all rows that are not far wider than the others."""
    with np.errstate(invalid="ignore", over="ignore"):
        spans = high - low
    usual = spans[np.isfinite(spans)]
    typical = float(np.median(usual)) if len(usual) else 0.0
    anchor = spans[main] if main is not None and np.isfinite(spans[main]) else typical
    most = _FAR * max(typical, float(anchor)) if typical else math.inf
    known = middle[np.isfinite(middle)]
    center = middle[main] if main is not None else float(np.median(known)) if len(known) else 0.0
    shown = [reference] if reference is not None else []
    for index in range(len(middle)):
        near = abs(middle[index] - center) <= most and spans[index] <= most
        if index == main or near:
            shown += [float(middle[index]), float(low[index]), float(high[index])]
            shown += [] if floor is None else [float(floor[index])]
    return shown if any(math.isfinite(end) for end in shown[1:]) else [*shown, *middle.tolist()]


def _whisker(canvas: Canvas, scale: Scale, y: float, low: float, high: float, main: bool, weak: bool) -> None:
    """The line of an interval, with arrow heads where it goes on beyond the axis."""
    if math.isnan(low) or math.isnan(high):
        return
    cls, width = ("c0", 3.0) if main else ("c6", 1.8)
    dash = "2 3" if weak else ""
    if high < scale.low or low > scale.high:  # all of it lies outside
        edge, sign = (scale.start, -1) if high < scale.low else (scale.end, 1)
        _arrow(canvas, edge, y, sign, cls)
        return
    canvas.line(scale(low), y, scale(high), y, cls=cls, width=width, dash=dash)
    for value, sign in ((low, -1), (high, 1)):
        if scale.inside(value):
            canvas.line(scale(value), y - 4, scale(value), y + 4, cls=cls, width=width)
        else:
            _arrow(canvas, scale(value), y, sign, cls)


def _arrow(canvas: Canvas, x: float, y: float, sign: int, cls: str) -> None:
    canvas.path([(x, y), (x - 9 * sign, y - 5), (x - 9 * sign, y + 5)], cls=cls, fill=True)
