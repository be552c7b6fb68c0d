"""The appendix figure on the larger synthetic task: d = 100, |A| = 300, Lambda = 10."""

from __future__ import annotations

from shpi.experiments._page.compare import shpi_beats, side_by_side
from shpi.experiments._page.figures import boxes
from shpi.experiments._run.cells import Cell
from shpi.experiments._run.experiment import Block, Experiment, Note, Results
from shpi.experiments._run.settings import (
    BCQ,
    CB,
    FEW,
    LOGGING,
    OURS,
    REPAIRED,
    K,
    Method,
    Settings,
)

EPSILON, LAMBDA = 0.3, 10.0  # exploration of mu; weight of the penalty
PROXIMAL = Method(name="SHPI, paper(), Lambda = 10", learner="shpi-paper", k=K, Lambda=LAMBDA)
METHODS = (LOGGING, PROXIMAL, REPAIRED, OURS, BCQ, CB)
CONTROLLER = Method(name="controller")  # the logging policy with epsilon 0
NAMES = (*(method.name for method in METHODS), CONTROLLER.name)
RIVALS = {"BCQ": "BCQ", "CB": "CB", "logging": "mu"}


def cells(settings: Settings) -> list[Cell]:
    """Every method on the log of every seed."""
    planned = [
        method.on(log, settings)
        for trial, log in enumerate(settings.logs("synthetic-large", EPSILON))
        for method in METHODS
        if trial < FEW or method is not REPAIRED
    ]
    return planned + [CONTROLLER.on(log, settings) for log in settings.logs("synthetic-large", 0.0)]


def show(results: Results) -> list[Block]:
    """Boxplots, the table, and whether BCQ falls behind."""
    title = "Large synthetic task: improvement Y_T - Y_0 of new users"
    return [
        boxes(results, "synthetic-large.svg", title, NAMES, label="Y_T - Y_0"),
        side_by_side(results, title, NAMES, reference="SHPI, defaults"),
        side_by_side(results, "The same as a share of what can be attained", NAMES, metric="attained"),
        *shpi_beats(results, RIVALS),
        Note(
            "No online agent learns this task with 1,000 users, so the logging policy is the "
            "epsilon-greedy version of the simple controller, which knows the action vectors and is shown "
            "beside the others. The page on simulators says what a planner attains that knows everything."
        ),
    ]


EXPERIMENT = Experiment(
    name="synthetic-large",
    title="The synthetic task at d = 100 with 300 actions",
    source="Appendix, the figure on the larger benchmark",
    about="2,000 users and 150 decisions each, epsilon = 0.3. The paper shows a figure without numbers.",
    cells=cells,
    show=show,
)
