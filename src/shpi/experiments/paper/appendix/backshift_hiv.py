"""The appendix figure on backshift in HIV."""

from __future__ import annotations

from shpi.experiments._page.figures import boxes
from shpi.experiments._run.cells import Cell
from shpi.experiments._run.experiment import Block, Experiment, Results
from shpi.experiments._run.settings import FEW, LOGGING, Settings
from shpi.experiments.paper.appendix import backshift

READINGS = ("paper()",)  # the others take too long for a figure without numbers
METHODS = (LOGGING, *(m for m in backshift.methods() if m.name.endswith(READINGS)))
NAMES = tuple(method.name for method in METHODS)
EPSILON = 1.0  # exploration of mu


def cells(settings: Settings) -> list[Cell]:
    """Every method on the log of every seed."""
    return [
        method.on(log, settings) for log in settings.first(FEW).logs("hiv", EPSILON) for method in METHODS
    ]


def show(results: Results) -> list[Block]:
    """Boxplots and claims; the paper prints no numbers."""
    title = "HIV, uniform log: sum of rewards with simple and with backshift rewards"
    return [
        boxes(results, "backshift-hiv.svg", title, NAMES, label="sum of rewards", log_x=True),
        *backshift.tables(results, title, "hiv", None),
    ]


EXPERIMENT = Experiment(
    name="backshift-hiv",
    title="Rewards recovered from V in HIV",
    source="Appendix, the figure on backshift in HIV",
    about="5,000 patients under random treatment. Rewards in HIV depend on the treatment also directly, "
    "through its side effects, which rewards recovered from V cannot show.",
    cells=cells,
    show=show,
)
