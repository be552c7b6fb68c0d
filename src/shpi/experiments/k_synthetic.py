"""The appendix figure on k in the synthetic task, with and without the proximal constraint."""

from __future__ import annotations

from typing import Any

import numpy as np

from shpi.experiments.cells import Cell
from shpi.experiments.compare import FEWEST, LEVEL, better, plain, spread
from shpi.experiments.experiment import Block, Claim, Experiment, Results, Table
from shpi.experiments.figures import curves
from shpi.experiments.settings import FEW, Method, Settings
from shpi.experiments.stats import paired, summarise

FLOOR = -10_000.0  # of the figure: policies that leave the states of the log can fall far lower
KS = (1, 5, 20, 150)  # 1, 5 and 150 are those of Table 3
LAMBDAS = {0.3: (0.0, 10.0), 1.0: (0.0,)}  # the penalty is for narrow logs


def label(Lambda: float) -> str:
    """The method's name in the rows."""
    return "SHPI, paper()" if Lambda == 0 else f"SHPI, paper(), Lambda = {Lambda:g}"


def cells(settings: Settings) -> list[Cell]:
    """paper() for every k on a narrow and on a uniform log; on the narrow one also with Lambda = 10."""
    return [
        Method(name=label(Lambda), learner="shpi-paper", k=k, Lambda=Lambda or None).on(log, settings)
        for epsilon, lambdas in LAMBDAS.items()
        for log in settings.first(FEW).logs("synthetic", epsilon)
        for Lambda in lambdas
        for k in KS
    ]


def show(results: Results) -> list[Block]:
    """Return against k, the spread against k, and what the penalty does."""
    blocks: list[Block] = []
    for epsilon, lambdas in LAMBDAS.items():
        series = {label(one): {"method": label(one), "epsilon": epsilon} for one in lambdas}
        title = f"Synthetic task, epsilon = {epsilon:g}: Y_T - Y_0 against k"
        file = f"k-synthetic-{epsilon:g}.svg"
        y_label = f"Y_T - Y_0, cut at {plain(FLOOR)}"
        blocks.append(
            curves(results, file, title, "k", KS, series, x_label="k", y_label=y_label, floor=FLOOR)
        )
        blocks.append(by_k(results, title, KS, series))
        blocks.append(variance_grows(results, label(0.0), KS, epsilon))
        if len(lambdas) > 1:
            blocks += [_steadier(results, epsilon, k) for k in KS]
    return blocks


def by_k(results: Results, title: str, ks: tuple[int, ...], series: dict[str, dict[str, Any]]) -> Table:
    """Mean ± sd for every k."""
    rows = []
    for k in ks:
        row = [str(k)]
        for where in series.values():
            values = results.values(**where, k=k)
            found = summarise(values) if len(values) else None
            row.append("–" if found is None else spread((found.mean, found.deviation)))
        rows.append(tuple(row))
    return Table(title, ("k", *series), tuple(rows))


def variance_grows(results: Results, method: str, ks: tuple[int, ...], epsilon: float) -> Claim:
    """Larger k raises the variance: trials lie farther from their mean at the largest k than at k = 5."""
    short = results.trials(method=method, epsilon=epsilon, k=5)
    long = results.trials(method=method, epsilon=epsilon, k=ks[-1])
    shared = sorted(set(short) & set(long))
    a = summarise([short[s] for s in shared]) if shared else None
    b = summarise([long[s] for s in shared]) if shared else None
    text = f"epsilon = {epsilon:g}: a larger k raises the variance ({method}, k = {ks[-1]} against k = 5)"
    if a is None or b is None:
        return Claim(text, None, "no trials", "variance", "paper()")
    far = np.array([abs(long[s] - b.mean) for s in shared])
    near = np.array([abs(short[s] - a.mean) for s in shared])
    test = paired(far, near)
    evidence = (
        f"sd over trials {plain(a.deviation)} at k = 5 and {plain(b.deviation)} at k = {ks[-1]}; "
        f"paired test of the distances from the mean: p = {test.p:.3f}"
    )
    holds = None if test.n < FEWEST else test.difference > 0 and test.p <= LEVEL
    return Claim(text, holds, evidence, "variance", "paper()" if "paper" in method else "defaults")


def _steadier(results: Results, epsilon: float, k: int) -> Claim:
    pair = results.aligned((label(10.0), label(0.0)), epsilon=epsilon, k=k)
    text = f"epsilon = {epsilon:g}, k = {k}: the proximal penalty makes better policies from a narrow log"
    if len(pair) < 2:
        return Claim(text, None, "no trials")
    return better(
        text,
        pair[label(10.0)],
        pair[label(0.0)],
        names=("Lambda = 10", "Lambda = 0"),
        topic="proximal",
        who="paper()",
    )


EXPERIMENT = Experiment(
    name="k-synthetic",
    title="The horizon k in the synthetic task, with and without the proximal penalty",
    source="Appendix, the figure on k and the proximal constraint",
    about="paper() at several horizons. Lambda is the weight of the proximal penalty, in standard "
    "deviations of the advantages.",
    cells=cells,
    show=show,
)
