"""Table 1, the private data set: replaced by a simulator that is fitted to KuaiRand's public logs."""

from __future__ import annotations

from typing import Any

from shpi.experiments._page.compare import for_readings, shpi_beats, side_by_side
from shpi.experiments._page.figures import boxes
from shpi.experiments._run.cells import Cell, Log
from shpi.experiments._run.experiment import Block, Experiment, Note, Results
from shpi.experiments._run.settings import BCQ, CB, FEW, LOGGING, NNIPS, OURS, PAPER, REPAIRED, Settings

METHODS = (LOGGING, CB, PAPER, REPAIRED, OURS, BCQ, NNIPS)  # the release has no such world
NAMES = tuple(method.name for method in METHODS)
EPSILON = 0.3  # exploration of mu
ASSUMED = 1.0  # log-odds of coming back per unit of log(1 + long views of the day); invented
MANY = 40_000  # users, enough to learn the invented effect: with 2,000 it is 3 % of the noise
REPORTED = for_readings(
    {
        "logging": (-0.69, 0.30),
        "CB": (-1.53, 0.03),
        "SHPI": (-0.29, 0.21),
        "BCQ": (-1.02, 0.29),
        "NN-IPS": (-0.98, 0.04),
    }
)
RIVALS = {"CB": "CB", "BCQ": "RL (BCQ)", "NN-IPS": "NN-IPS", "logging": "logging"}
WORLDS = {"as estimated": 0.0, "with an assumed effect": ASSUMED}


def params(assumed: float = 0.0) -> dict[str, Any]:
    """Parameters of the KuaiRand world, with the long-term score as reward; SHPI_DATA locates its files."""
    return {"assumed": assumed, "reward": "long_term"}


def cells(settings: Settings) -> list[Cell]:
    """Every method in both worlds."""
    return [
        method.on(log, settings)
        for variant in WORLDS
        for log in logs(settings, variant)
        for method in METHODS
        if method in (LOGGING, CB, OURS, BCQ) or not WORLDS[variant]
    ]


def logs(settings: Settings, variant: str) -> list[Log]:
    """The logs of one world; fewer of the one with an invented effect, which is not the paper's."""
    assumed = WORLDS[variant]
    chosen = settings.first(FEW) if assumed else settings
    users = MANY if assumed and not settings.quick else None
    return chosen.logs("kuairand", EPSILON, params(assumed), variant=variant, users=users)


def show(results: Results) -> list[Block]:
    """Both worlds beside the paper's table."""
    blocks: list[Block] = []
    for variant, assumed in WORLDS.items():
        world = f"kuairand, {variant}"
        title = f"KuaiRand world, {variant}: long-term score of new users"
        blocks += [
            boxes(results, f"private-{assumed:g}.svg", title, NAMES, label="score in [-1, 1]", world=world),
            side_by_side(results, title, NAMES, paper=REPORTED, reference="SHPI, defaults", world=world),
            *shpi_beats(results, RIVALS, f"{variant}: ", world=world),
        ]
    blocks.append(
        Note(
            "The paper normalises by dividing the logging policy's (negative) score by a method's: CB "
            "0.45, SHPI 2.37, RL 0.68, NN-IPS 0.70. Scores here can have both signs, so differences are "
            "tested instead."
        )
    )
    return blocks


EXPERIMENT = Experiment(
    name="private",
    title="A world fitted to real logs",
    source="Table 1",
    about="The paper's data are private. In their place stands a world with 112 actions and 47 context "
    "columns, fitted to KuaiRand's public logs; its reward is the score 2 P(active again in 7 days) - 1. "
    "In these data no effect of an action on the next days can be detected, so there is next to nothing "
    "to gain in the world as estimated. The second world adds an invented effect of today's long views on "
    "coming back, to see what methods do where there is something to gain, with 40,000 users, from which it "
    "can be learned; it says nothing about KuaiRand's users. There the best constant action "
    "gains about 0.147.",
    cells=cells,
    show=show,
    needs_data=True,
)
