"""Table 2: training on clicks against training on the long-term reward, both judged by the latter."""

from __future__ import annotations

from shpi.experiments._page.compare import better, for_readings, spread
from shpi.experiments._page.figures import grouped
from shpi.experiments._page.stats import Summary, summarise
from shpi.experiments._run.cells import Cell
from shpi.experiments._run.experiment import Block, Claim, Experiment, Results, Table
from shpi.experiments._run.settings import FEW, LOGGING, Settings, reading_of
from shpi.experiments.paper import recogym

LEARNERS = tuple(method for method in recogym.METHODS if method is not LOGGING)
LTR, CLICKS = "recogym", "recogym, trained on clicks"
REPORTED = for_readings(
    {  # the row "Click"
        "CB": (0.11, 0.16),
        "SHPI": (0.02, 0.23),
        "BCQ": (-0.03, 0.05),
        "CB+MF": (-0.20, 0.21),
        "NN-IPS": (0.11, 0.31),
    }
)


def cells(settings: Settings) -> list[Cell]:
    """The cells of Figure 3, and the same methods on the same users with clicks as rewards."""
    planned = recogym.cells(settings)
    logs = settings.logs("recogym", recogym.EPSILON, {"reward": "click"}, variant="trained on clicks")
    return planned + [m.on(log, settings, {"reward": "ltr"}) for log in logs[:FEW] for m in LEARNERS]


def show(results: Results) -> list[Block]:
    """Both rows of the table for every method, and whether the long-term reward was the better signal."""
    rows, claims = [], []
    by_signal: dict[str, list[Summary]] = {"trained on clicks": [], "trained on the long-term reward": []}
    for method in LEARNERS:
        name = method.name
        ltr, click = results.pairs({"world": LTR, "method": name}, {"world": CLICKS, "method": name})
        if not len(ltr):
            continue
        a, b = summarise(click), summarise(ltr)
        for side, summary in zip(by_signal.values(), (a, b), strict=True):
            side.append(summary)
        rows.append(
            (
                name,
                spread(REPORTED.get(name)),
                spread((a.mean, a.deviation)),
                spread(recogym.REPORTED.get(name)),
                spread((b.mean, b.deviation)),
            )
        )
        text = f"{name}: training on the long-term reward beats training on clicks"
        claims.append(
            better(text, ltr, click, names=("LTR", "clicks"), topic="signal", reading=reading_of(name))
        )
    columns = ("method", "clicks, paper", "clicks, ours", "LTR, paper", "LTR, ours")
    table = Table("Mean long-term reward of new users, by what was trained on", columns, tuple(rows))
    shpi: list[Claim] = [claim for claim in claims if claim.text.startswith("SHPI")]
    title = "RecoGym: mean long-term reward of new users, by what was trained on"
    figure = grouped("signals.svg", title, [row[0] for row in rows], by_signal, "mean long-term reward, ± sd")
    return [figure, table, *shpi, *(claim for claim in claims if claim not in shpi)]


EXPERIMENT = Experiment(
    name="signals",
    title="Clicks or the long-term reward as the training signal",
    source="Table 2",
    about="The users, the logging policy and the clicks are the same in both rows; only the reward that the "
    "methods see differs. All are judged by the long-term reward.",
    cells=cells,
    show=show,
)
