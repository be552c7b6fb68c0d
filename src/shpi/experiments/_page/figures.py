"""The figures that most experiments share: boxplots of methods over trials, and curves over a setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shpi.experiments._page.compare import Paper, plain, spread
from shpi.experiments._page.stats import Summary, middle_interval
from shpi.experiments._run.experiment import Figure, Note, Results
from shpi.protocols import Float64Array
from shpi.report import svg

NEAR = 0.1  # boxes: the axis is extended for values that miss it by less than this share of its width
FAR = 3.0  # boxes: the axis ends this many times the spread of the better methods below them


def boxes(
    results: Results,
    file: str,
    title: str,
    methods: Sequence[str],
    *,
    paper: Paper | None = None,
    label: str = "",
    metric: str = "score",
    log_x: bool = False,
    **where: Any,
) -> Figure | Note:
    """One boxplot per method over trials, with the paper's mean as a diamond and ours as text.

    With ``log_x`` the axis is logarithmic if all values are positive, and no value is cut off.
    """
    trials = {name: results.values(metric, method=name, **where) for name in methods}
    trials = {name: values for name, values in trials.items() if len(values)}
    if not trials:
        return Note(f"{title}: no trials yet.")
    shown = {name: value[0] for name, value in (paper or {}).items() if name in trials}
    log_x = log_x and all((values > 0).all() for values in trials.values())
    floor = -np.inf if log_x else _floor(list(trials.values()), list(shown.values()))
    texts = [
        spread((float(v.mean()), float(v.std(ddof=1)) if len(v) > 1 else 0.0))
        + (" (off the chart)" if v.min() < floor else "")
        for v in trials.values()
    ]
    drawing = svg.boxplots(
        list(trials),
        [np.maximum(values, floor) for values in trials.values()],
        title=title,
        description="; ".join(f"{name}: {text}" for name, text in zip(trials, texts, strict=True)),
        marks=[shown.get(name) for name in trials] if paper is not None else None,
        mark_name="the paper's mean",
        texts=texts,
        x_label=f"{label} (logarithmic)".strip() if log_x else label,
        log_x=log_x,
    )
    return Figure(file, title, drawing)


def grouped(
    file: str, title: str, labels: Sequence[str], series: Mapping[str, Sequence[Summary]], label: str = ""
) -> Figure | Note:
    """Bars of means with their standard deviations, one group per label."""
    if not labels:
        return Note(f"{title}: no trials yet.")
    drawing = svg.bars(
        labels,
        {name: [summary.mean for summary in summaries] for name, summaries in series.items()},
        errors={name: [summary.deviation for summary in summaries] for name, summaries in series.items()},
        title=title,
        description="; ".join(
            f"{name}: {', '.join(plain(summary.mean) for summary in summaries)}"
            for name, summaries in series.items()
        ),
        show=plain,
        x_label=label,
    )
    return Figure(file, title, drawing)


def curves(
    results: Results,
    file: str,
    title: str,
    field: str,
    at: Sequence[float],
    series: Mapping[str, Mapping[str, Any]],
    *,
    x_label: str,
    y_label: str,
    metric: str = "score",
    log_x: bool = True,
    log_y: bool = False,
    floor: float = -np.inf,
) -> Figure:
    """The mean over trials against a setting, with a bootstrap interval of the interquartile mean as a band.

    Args:
        results: the rows.
        file: file of the figure.
        title: title of the figure.
        field: field of the rows on the horizontal axis.
        at: values of that field.
        series: by name of the curve, the fields that select its rows.
        x_label: label below the axis.
        y_label: label above the axis.
        metric: metric of the rows.
        log_x: a logarithmic horizontal axis.
        log_y: a logarithmic vertical axis.
        floor: lower values are drawn at this one.
    """
    means: dict[str, Float64Array] = {}
    bands: dict[str, tuple[Float64Array, Float64Array]] = {}
    for name, where in series.items():
        groups = [results.values(metric, **{**where, field: x}) for x in at]
        means[name] = np.maximum([g.mean() if len(g) else np.nan for g in groups], floor)
        ends = np.array([middle_interval([g]) if len(g) else (np.nan, np.nan) for g in groups])
        bands[name] = np.maximum(ends[:, 0], floor), np.maximum(ends[:, 1], floor)
    text = "; ".join(f"{name}: {', '.join(plain(float(v)) for v in m)}" for name, m in means.items())
    drawing = svg.lines(
        list(at),
        means,
        bands=bands,
        title=title,
        description=text,
        log_x=log_x,
        log_y=log_y,
        dots=True,
        x_label=x_label,
        y_label=y_label,
    )
    return Figure(file, title, drawing)


def _floor(groups: Sequence[Float64Array], published: Sequence[float]) -> float:
    """The lower end of the axis: a method that fails must not hide how the others differ."""
    order = sorted(groups, key=lambda values: float(np.median(values)))[len(groups) // 2 :]
    better = [float(np.median(values)) for values in order]
    spread_of_one = max(float(np.subtract(*np.quantile(values, [0.75, 0.25]))) for values in order)
    width = max(better[-1] - better[0], spread_of_one, 0.02 * abs(better[-1]), 1e-9)
    floor = min([better[0] - FAR * width, *published])
    values = np.concatenate(groups)
    near = values[values >= floor - NEAR * (values.max() - floor)]  # values that just miss the axis extend it
    return min(floor, float(near.min()))
