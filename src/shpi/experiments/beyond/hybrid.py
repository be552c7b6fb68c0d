"""Beyond the paper: learning from a log first, then online from a small number of users."""

from __future__ import annotations

from shpi.experiments._page.compare import better, spread
from shpi.experiments._page.figures import grouped
from shpi.experiments._page.stats import Summary, summarise
from shpi.experiments._run.cells import Cell
from shpi.experiments._run.experiment import Block, Experiment, Results, Table
from shpi.experiments._run.settings import FEW, OURS, Settings
from shpi.protocols import Float64Array

BUDGETS = (100, 400)  # numbers of online episodes
WORLDS = {"synthetic": 1.0, "storefront": 1.0}
HYBRID, SCRATCH = "hybrid", "online alone"


def cells(settings: Settings) -> list[Cell]:
    """Offline learning alone; then each online budget, with and without the log."""
    planned = []
    for world, epsilon in WORLDS.items():
        for log in settings.first(FEW).logs(world, epsilon):
            planned.append(OURS.on(log, settings))
            for budget in BUDGETS[:1] if settings.quick else BUDGETS:
                for name, extra in ((HYBRID, {"start": "log"}), (SCRATCH, {})):
                    planned.append(
                        Cell(
                            method=f"{name}, {budget} users",
                            log=log,
                            work="online",
                            options={"episodes": budget, **extra},
                            rollouts=settings.rollouts,
                        )
                    )
    return planned


def show(results: Results) -> list[Block]:
    """Return by budget, and whether the log helps."""
    blocks: list[Block] = []
    for world in WORLDS:
        rows: list[tuple[str, ...]] = []
        claims: list[Block] = []
        bars: dict[str, list[Summary]] = {"log, then online": [], "online alone": [], "log alone": []}
        for budget in BUDGETS:
            names = [f"{name}, {budget} users" for name in (HYBRID, SCRATCH)]
            pair = results.aligned((*names, OURS.name), world=world)
            if len(pair) < 3:
                continue
            summaries = [summarise(values) for values in pair.values()]
            for side, summary in zip(bars.values(), summaries, strict=True):
                side.append(summary)
            rows.append((str(budget), *(spread((summary.mean, summary.deviation)) for summary in summaries)))
            claims += _claims(f"{world}, {budget} users online", *pair.values())
        title = f"{world}: score of new users by the number of users online"
        labels = [f"{row[0]} users" for row in rows]
        blocks.append(grouped(f"hybrid-{world}.svg", title, labels, bars, "score, ± sd"))
        blocks += [Table(title, ("users online", *bars), tuple(rows)), *claims]
    return blocks


def _claims(label: str, hybrid: Float64Array, scratch: Float64Array, offline: Float64Array) -> list[Block]:
    text = f"{label}: a log first is better than online alone"
    other = f"{label}: going on online is better than the log alone"
    return [
        better(text, hybrid, scratch, names=(HYBRID, SCRATCH), topic="hybrid", reading="defaults"),
        better(other, hybrid, offline, names=(HYBRID, "offline"), topic="hybrid", reading="defaults"),
    ]


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
