"""The appendix figure on k in the synthetic task, with and without the proximal constraint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from shpi.experiments._page.compare import better, plain, side_by_side, spread, steadier
from shpi.experiments._page.figures import curves
from shpi.experiments._page.stats import summarise
from shpi.experiments._run.cells import Cell
from shpi.experiments._run.experiment import Block, Claim, Experiment, Results, Table
from shpi.experiments._run.settings import FEW, READINGS, K, Method, Settings, reading_of

FLOORS = {0.3: -200_000.0, 1.0: -10_000.0}  # lower ends of the figures: policies off the support fall far
KS = (1, 5, 20, 150)  # 1, 5 and 150 are those of Table 3
NARROW, LAMBDA = 0.3, 10.0  # exploration of a narrow log; weight of the penalty
LAMBDAS = {NARROW: (0.0, LAMBDA), 1.0: (0.0,)}  # the penalty is for narrow logs
FIXED = {label: method for label, method in READINGS.items() if label != "defaults"}  # k is fixed
PENALISED = ("paper()", "repaired()")  # on the release, see docs/paper-and-release.md


def label(Lambda: float, who: str = "paper()") -> str:
    """The method's name in the rows."""
    return f"SHPI, {who}" if Lambda == 0 else f"SHPI, {who}, Lambda = {Lambda:g}"


def cells(settings: Settings) -> list[Cell]:
    """The readings for every k on two logs; on the narrow one also with Lambda = 10, as our defaults."""
    few = settings.first(FEW)
    planned = [
        replace(method, name=label(0.0, who), k=k).on(log, settings)
        for epsilon in LAMBDAS
        for log in few.logs("synthetic", epsilon)
        for who, method in FIXED.items()
        for k in KS
    ]
    narrow = few.logs("synthetic", NARROW)
    planned += [
        replace(FIXED[who], name=label(LAMBDA, who), Lambda=LAMBDA).on(log, settings)
        for log in narrow
        for who in PENALISED
    ]
    return planned + [
        Method(name=label(Lambda, "defaults"), learner="shpi", k="auto", Lambda=Lambda or None).on(log, few)
        for log in narrow
        for Lambda in LAMBDAS[NARROW]
    ]


def show(results: Results) -> list[Block]:
    """Return and spread against k, and the effect of the penalty."""
    blocks: list[Block] = []
    for epsilon in LAMBDAS:
        series = {label(0.0, who): {"method": label(0.0, who), "epsilon": epsilon} for who in FIXED}
        title = f"Synthetic task, epsilon = {epsilon:g}: Y_T - Y_0 against k"
        file = f"k-synthetic-{epsilon:g}.svg"
        floor = FLOORS[epsilon]
        y_label = f"Y_T - Y_0, cut at {plain(floor)}"
        blocks.append(
            curves(results, file, title, "k", KS, series, x_label="k", y_label=y_label, floor=floor)
        )
        blocks.append(by_k(results, title, KS, series))
        blocks += [variance_grows(results, label(0.0, who), KS, epsilon) for who in FIXED]
    penalised: list[tuple[str, int | str]] = [(who, K) for who in PENALISED]
    for who, k in (*penalised, ("defaults", "auto")):
        names = [label(Lambda, who) for Lambda in LAMBDAS[NARROW]]
        title = f"{who}, k = {k}, epsilon = {NARROW:g}, with and without the penalty: Y_T - Y_0"
        blocks.append(side_by_side(results, title, names, reference=names[1], epsilon=NARROW, k=k))
        blocks += _penalty(results, NARROW, who, k)
    return blocks


def by_k(results: Results, title: str, ks: tuple[int, ...], series: dict[str, dict[str, Any]]) -> Table:
    """Mean ± sd for every k."""
    rows = []
    for k in ks:
        row = [str(k)]
        for where in series.values():
            values = results.values(**where, k=k)
            summary = summarise(values) if len(values) else None
            row.append("–" if summary is None else spread((summary.mean, summary.deviation)))
        rows.append(tuple(row))
    return Table(title, ("k", *series), tuple(rows))


def variance_grows(results: Results, method: str, ks: tuple[int, ...], epsilon: float) -> Claim:
    """The claim that a larger k raises the variance: trials spread more at the largest k than at k = 5."""
    long, short = (results.trials(method=method, epsilon=epsilon, k=k) for k in (ks[-1], 5))
    text = f"epsilon = {epsilon:g}: a larger k raises the variance ({method}, k = {ks[-1]} against k = 5)"
    names = (f"k = {ks[-1]}", "k = 5")
    return steadier(text, long, short, names=names, topic="variance", reading=reading_of(method))


def _penalty(results: Results, epsilon: float, who: str, k: int | str) -> list[Block]:
    """The claims that on a narrow log the proximal penalty gives better policies and less spread."""
    with_it, without = (results.trials(method=label(L, who), epsilon=epsilon, k=k) for L in (LAMBDA, 0.0))
    shared = sorted(set(with_it) & set(without))
    if not shared:
        return []
    pair = [np.array([side[seed] for seed in shared]) for side in (with_it, without)]
    head = f"epsilon = {epsilon:g}, {who}, k = {k}: the proximal penalty"
    names = (f"Lambda = {LAMBDA:g}", "Lambda = 0")
    text = f"{head} makes trials from a narrow log spread less"
    return [
        better(
            f"{head} makes better policies from a narrow log",
            *pair,
            names=names,
            topic="proximal",
            reading=who,
        ),
        steadier(text, without, with_it, names=names[::-1], topic="proximal", reading=who),
    ]


EXPERIMENT = Experiment(
    name="k-synthetic",
    title="The horizon k in the synthetic task, with and without the proximal penalty",
    source="Appendix, the figure on k and the proximal constraint",
    about="The readings at several horizons. Lambda is the weight of the proximal penalty, in standard "
    'deviations of the advantages. "Stabilises" is judged twice: by the mean of the policies, and by '
    "their spread over trials.",
    cells=cells,
    show=show,
)
