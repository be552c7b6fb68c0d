"""Beyond the paper: preferences that change while users are served, which the paper leaves to future work."""

from __future__ import annotations

from shpi.experiments._page.compare import better, plain, spread
from shpi.experiments._page.stats import summarise
from shpi.experiments._run.cells import Cell
from shpi.experiments._run.experiment import Block, Experiment, Figure, Note, Results, Table
from shpi.experiments._run.settings import CB, FEW, LOGGING, OURS, Settings
from shpi.report import svg

STEPS = (0.0, 0.3)  # standard deviation of the step of a user's interests at every tick
METHODS = (LOGGING, CB, OURS)
USERS, QUICK_USERS = 500, 40  # users of a log


def cells(settings: Settings) -> list[Cell]:
    """The same methods in worlds that differ in how fast interests drift, in the log and for new users."""
    planned = []
    for sigma in STEPS:
        params = {"sigma_omega": sigma, "change_omega_for_bandits": True}
        users = QUICK_USERS if settings.quick else USERS
        few = settings.first(FEW)
        logs = few.logs("recogym", 0.3, params, variant=f"drift {sigma:g}", users=users)
        planned += [method.on(log, settings) for log in logs for method in METHODS]
    return planned


def show(results: Results) -> list[Block]:
    """Scores against the speed of drift."""
    rows: list[tuple[str, ...]] = []
    claims: list[Block] = []
    means: dict[str, list[float]] = {method.name: [] for method in METHODS}
    for sigma in STEPS:
        names = [method.name for method in METHODS]
        trials = results.aligned(names, world=f"recogym, drift {sigma:g}")
        if len(trials) < len(names):
            continue
        summaries = [summarise(trials[name]) for name in names]
        for method, summary in zip(METHODS, summaries, strict=True):
            means[method.name].append(summary.mean)
        rows.append((f"{sigma:g}", *(spread((summary.mean, summary.deviation)) for summary in summaries)))
        text = f"drift {sigma:g}: SHPI's defaults are better than the logging policy"
        claims.append(
            better(
                text,
                trials[names[2]],
                trials[names[0]],
                names=("SHPI", "logging"),
                topic="drift",
                reading="defaults",
            )
        )
    columns = ("drift per tick", *(method.name for method in METHODS))
    title = "RecoGym: mean long-term reward of new users, by how fast interests drift"
    if not rows:
        return [Note("No trials of all methods yet.")]
    drawing = svg.lines(
        [float(row[0]) for row in rows],
        means,
        title=title,
        description="; ".join(f"{name}: {', '.join(map(plain, m))}" for name, m in means.items()),
        dots=True,
        x_label="standard deviation of one step of a user's interests",
        y_label="mean long-term reward",
    )
    return [Figure("drift.svg", title, drawing), Table(title, columns, tuple(rows)), *claims]


EXPERIMENT = Experiment(
    name="drift",
    title="Preferences that change",
    source="beyond the paper",
    about="The paper assumes that preferences are stationary and leaves the rest to future work. In "
    "RecoGym a user's interests drift while browsing (0.1 per step); here they drift at every tick, by 0 "
    "or 0.3. The log and the new users drift alike; the logging policy was trained in the usual world.",
    cells=cells,
    show=show,
)
