"""The appendix figure on k in HIV: an online ablation."""

from __future__ import annotations

from typing import Any

from shpi.experiments._page.compare import better
from shpi.experiments._page.figures import curves
from shpi.experiments._run.cells import Cell
from shpi.experiments._run.experiment import Block, Experiment, Results
from shpi.experiments._run.settings import FEW, Settings
from shpi.experiments.paper.appendix.k_synthetic import by_k, variance_grows

KS = (1, 5, 20, 50)  # horizons k
NAME = "online SHPI"
EPISODES, QUICK_EPISODES = 500, 100  # online episodes


def cells(settings: Settings) -> list[Cell]:
    """Online SHPI for every k, from a uniform policy; no log is used."""
    episodes = QUICK_EPISODES if settings.quick else EPISODES
    return [
        Cell(
            method=NAME,
            log=log,
            work="online",
            k=k,
            options={"episodes": episodes},
            rollouts=settings.rollouts,
        )
        for log in settings.first(FEW).logs("hiv", 1.0, users=episodes)
        for k in KS
    ]


def show(results: Results) -> list[Block]:
    """Return against k."""
    series: dict[str, dict[str, Any]] = {NAME: {"method": NAME}}
    title = "HIV, online: sum of rewards against k"
    trials = {k: results.trials(k=k) for k in KS}
    shared = sorted(set.intersection(*(set(by_seed) for by_seed in trials.values())))
    rows = Results(tuple(row for row in results.rows if row.seed in shared))
    best = max(KS, key=lambda k: rows.values(k=k).mean()) if shared else KS[0]
    blocks: list[Block] = [
        curves(
            results,
            "k-hiv.svg",
            title,
            "k",
            KS,
            series,
            x_label="k",
            y_label="sum of rewards (logarithmic)",
            log_y=True,
        ),
        by_k(results, title, KS, series),
        variance_grows(results, NAME, KS, 1.0),
    ]
    for end in (KS[0], KS[-1]):
        if shared and best != end:
            text = f"the best k in hindsight, k = {best}, is better than k = {end}"
            blocks.append(
                better(text, rows.values(k=best), rows.values(k=end), names=(f"k = {best}", f"k = {end}"))
            )
    return blocks


EXPERIMENT = Experiment(
    name="k-hiv",
    title="The horizon k in HIV, online",
    source="Appendix, the figure on k in HIV",
    about="Online SHPI, which needs no importance weights, from a uniform policy with 500 patients (the "
    "paper has 10,000; which the budget of a run does not allow).",
    cells=cells,
    show=show,
)
