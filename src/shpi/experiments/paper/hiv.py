"""Figure 5: treatment of HIV patients, from logs with epsilon 0.3 and 1."""

from __future__ import annotations

from shpi.experiments._page.compare import better, shpi_beats, side_by_side
from shpi.experiments._page.figures import boxes
from shpi.experiments._run.cells import Cell
from shpi.experiments._run.experiment import Block, Experiment, Note, Results
from shpi.experiments._run.settings import (
    BCQ,
    CB,
    FEW,
    LOGGING,
    OURS,
    PAPER,
    READINGS,
    RELEASED,
    REPAIRED,
    Settings,
    reading_of,
)
from shpi.experiments.paper.appendix.synthetic import AGENT, with_agent

METHODS = (LOGGING, CB, PAPER, RELEASED, REPAIRED, OURS, BCQ)
NAMES = (*(method.name for method in METHODS), AGENT.name)
EPSILONS = (0.3, 1.0)  # exploration of mu
RIVALS = {"logging": "mu", "CB": "CB", "BCQ": "offline RL (BCQ)"}
AS_RUN = (
    "The authors' released code was run here once, with 60 patients and an agent of 10 episodes (epsilon = "
    "1, rewards times 1e-7): mu 0.92, SHPI 1.13 with r = Y and 0.90 with differences, CB 0.43, BCQ 0.34, its "
    "online agent 2.34; one treatment throughout scores 0.70 at best."
)
OWN = tuple(method.name for method in READINGS.values())


def cells(settings: Settings) -> list[Cell]:
    """Every method on both logs, and the trained agent."""
    planned = [
        method.on(log, settings)
        for epsilon in EPSILONS
        for trial, log in enumerate(settings.logs("hiv", epsilon))
        for method in METHODS
        if trial < FEW or method not in (RELEASED, REPAIRED)
    ]
    return planned + [AGENT.on(log, settings) for log in settings.logs("hiv", 0.0)]


def show(results: Results) -> list[Block]:
    """Boxplots, tables, and the claims; the paper prints no numbers."""
    blocks: list[Block] = []
    for epsilon in EPSILONS:
        at_epsilon = with_agent(results, epsilon)
        title = f"HIV, epsilon = {epsilon:g}: sum of rewards of new patients"
        blocks += [
            boxes(at_epsilon, f"hiv-{epsilon:g}.svg", title, NAMES, label="sum of rewards", log_x=True),
            side_by_side(at_epsilon, title, NAMES, reference="SHPI, defaults"),
            *shpi_beats(at_epsilon, RIVALS, f"epsilon = {epsilon:g}: "),
        ]
    blocks.append(Note(AS_RUN))
    for method in OWN:
        wide = results.trials(method=method, epsilon=1.0)
        narrow = results.trials(method=method, epsilon=0.3)
        shared = sorted(set(wide) & set(narrow))
        pair = Results(tuple(row for row in results.rows if row.method == method and row.seed in shared))
        text = f"{method} learns better from a uniform log than from one near the optimum"
        blocks.append(
            better(
                text,
                pair.values(epsilon=1.0),
                pair.values(epsilon=0.3),
                names=("uniform", "epsilon 0.3"),
                topic="uniform",
                reading=reading_of(method),
            )
        )
    return blocks


EXPERIMENT = Experiment(
    name="hiv",
    title="HIV under two behaviour policies",
    source="Figure 5",
    about='5,000 patients and 200 treatments each. The paper shows boxplots without numbers. "Online RL" '
    "is the trained agent whose epsilon-greedy versions wrote the logs.",
    cells=cells,
    show=show,
)
