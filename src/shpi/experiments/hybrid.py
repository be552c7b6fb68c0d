"""Beyond the paper: a log first, then a small number of users online."""

from __future__ import annotations

from shpi.experiments.cells import Cell
from shpi.experiments.compare import better, spread
from shpi.experiments.experiment import Block, Experiment, Results, Table
from shpi.experiments.settings import FEW, OURS, Settings
from shpi.experiments.stats import summarise

BUDGETS = (100, 400)
WORLDS = {"synthetic": 1.0, "storefront": 1.0}
HYBRID, SCRATCH = "hybrid", "online alone"


def cells(settings: Settings) -> list[Cell]:
    """Offline alone; then each budget online, after the log and without it."""
    found = []
    for world, epsilon in WORLDS.items():
        for log in settings.first(FEW).logs(world, epsilon):
            found.append(OURS.on(log, settings))
            for budget in BUDGETS[:1] if settings.quick else BUDGETS:
                for name, extra in ((HYBRID, {"start": "log"}), (SCRATCH, {})):
                    found.append(
                        Cell(
                            method=f"{name}, {budget} users",
                            log=log,
                            work="online",
                            options={"episodes": budget, **extra},
                            rollouts=settings.rollouts,
                        )
                    )
    return found


def show(results: Results) -> list[Block]:
    """Return by budget, and whether the log helps."""
    blocks: list[Block] = []
    for world in WORLDS:
        rows = []
        for budget in BUDGETS:
            names = [f"{name}, {budget} users" for name in (HYBRID, SCRATCH)]
            pair = results.aligned((*names, OURS.name), world=world)
            if len(pair) < 3:
                continue
            found = {name: summarise(values) for name, values in pair.items()}
            rows.append((str(budget), *(spread((f.mean, f.deviation)) for f in found.values())))
            text = f"{world}, {budget} users online: a log first is better than online alone"
            blocks.append(better(text, pair[names[0]], pair[names[1]], names=(HYBRID, SCRATCH)))
            text = f"{world}, {budget} users online: going on online is better than the log alone"
            blocks.append(better(text, pair[names[0]], pair[OURS.name], names=(HYBRID, "offline")))
        columns = ("users online", "log, then online", "online alone", "log alone")
        blocks.insert(0, Table(f"{world}: score of new users", columns, tuple(rows)))
    return blocks


EXPERIMENT = Experiment(
    name="hybrid",
    title="Offline first, then a small online budget",
    source="beyond the paper",
    about="The paper calls this the setting of most recommenders, and reports offline results only. The "
    "uniform log is the one of the other experiments; then online SHPI starts from what was learned from "
    "it, and keeps it.",
    cells=cells,
    show=show,
)
