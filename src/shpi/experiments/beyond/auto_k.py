"""Beyond the paper: k chosen from the log, against fixed k."""

from __future__ import annotations

from shpi.experiments._page.compare import FEWEST, LEVEL, plain, spread
from shpi.experiments._page.figures import boxes
from shpi.experiments._page.stats import paired, summarise
from shpi.experiments._run.cells import Cell
from shpi.experiments._run.experiment import Block, Claim, Experiment, Results, Table
from shpi.experiments._run.settings import FEW, OURS, Method, Settings

KS = (1, 5)  # fixed horizons to compare with
LOGS = (("synthetic", 0.3), ("synthetic", 1.0), ("storefront", 1.0))
FIXED = {k: Method(name=f"k = {k}", learner="shpi", k=k) for k in KS}


def cells(settings: Settings) -> list[Cell]:
    """Our defaults, with k chosen from the log and with every fixed k."""
    return [
        method.on(log, settings)
        for world, epsilon in LOGS
        for log in settings.first(FEW).logs(world, epsilon)
        for method in (OURS, *FIXED.values())
    ]


def show(results: Results) -> list[Block]:
    """Scores, the chosen k, and whether it is ever clearly worse than the best fixed k."""
    names = (OURS.name, *(method.name for method in FIXED.values()))
    rows: list[tuple[str, ...]] = []
    claims: list[Block] = []
    figures: list[Block] = []
    for world, epsilon in LOGS:
        trials = results.aligned(names, world=world, epsilon=epsilon)
        if OURS.name not in trials or len(trials) < 2:
            continue
        summaries = {name: summarise(values) for name, values in trials.items()}
        chosen = results.values("k", method=OURS.name, world=world, epsilon=epsilon)
        counts = ", ".join(f"{k:g}" for k in sorted(set(chosen)))
        label = f"{world}, epsilon = {epsilon:g}"
        title = f"{label}: score of new users by horizon"
        figures.append(
            boxes(results, f"auto-k-{len(rows)}.svg", title, list(trials), world=world, epsilon=epsilon)
        )
        rows.append(
            (label, counts, *(spread((summary.mean, summary.deviation)) for summary in summaries.values()))
        )
        best = max((name for name in trials if name != OURS.name), key=lambda name: summaries[name].mean)
        test = paired(trials[best], trials[OURS.name])
        claims.append(
            Claim(
                f"{label}: the chosen k is not clearly worse than the best fixed one in hindsight",
                None if test.n < FEWEST else test.p > LEVEL,
                f"{best}: {plain(summaries[best].mean)}, auto: {plain(summaries[OURS.name].mean)}; "
                f"p = {test.p:.3f} that the fixed one is better",
                "auto-k",
                "defaults",
            )
        )
    columns = ("log", "chosen k", "auto", *(method.name for method in FIXED.values()))
    return [*figures, Table("Score of new users by horizon", columns, tuple(rows)), *claims]


EXPERIMENT = Experiment(
    name="auto-k",
    title="k chosen from the log",
    source="beyond the paper",
    about="The paper asks whether k can be tuned to the problem. Our default chooses it from the log alone.",
    cells=cells,
    show=show,
)
