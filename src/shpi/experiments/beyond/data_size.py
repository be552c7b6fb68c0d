"""Beyond the paper: return against the number of logged users."""

from __future__ import annotations

from shpi.experiments._page.compare import better, plain, spread
from shpi.experiments._page.figures import curves
from shpi.experiments._page.stats import summarise
from shpi.experiments._run.cells import Cell
from shpi.experiments._run.experiment import Block, Experiment, Results, Table
from shpi.experiments._run.settings import CB, FEW, LOGGING, OURS, Settings

WORLD, EPSILON = "synthetic", 1.0
SIZES, QUICK_SIZES = (50, 400), (20, 40)  # users of a log
FLOOR = -1.0  # lowest score in the figure; lower ones are drawn here
METHODS = (LOGGING, OURS, CB)


def cells(settings: Settings) -> list[Cell]:
    """Every method on logs of several sizes; the largest are those of the synthetic table."""
    sizes = QUICK_SIZES if settings.quick else SIZES
    return [
        method.on(log, settings)
        for users in sizes
        for log in settings.first(FEW).logs(WORLD, EPSILON, users=users)
        for method in METHODS
    ]


def show(results: Results) -> list[Block]:
    """Curves over the number of users."""
    sizes = sorted({row.users for row in results.rows})
    series = {method.name: {"method": method.name} for method in METHODS if method is not LOGGING}
    title = "Synthetic task, uniform log: share attained against the number of logged users"
    rows = []
    for users in sizes:
        row = [f"{users:,}"]
        for method in METHODS:
            values = results.values("attained", method=method.name, users=users)
            summary = summarise(values) if len(values) else None
            row.append("–" if summary is None else spread((summary.mean, summary.deviation)))
        rows.append(tuple(row))
    blocks: list[Block] = [
        curves(
            results,
            "data-size.svg",
            title,
            "users",
            [float(users) for users in sizes],
            series,
            x_label="logged users",
            y_label=f"share of the attainable improvement, cut at {plain(FLOOR)}",
            metric="attained",
            floor=FLOOR,
        ),
        Table(title, ("users", *(method.name for method in METHODS)), tuple(rows)),
    ]
    for users in sizes:
        pair = results.aligned((OURS.name, LOGGING.name), users=users)
        if len(pair) == 2:
            text = (
                f"{users:,} logged users are enough for SHPI's defaults to be better than the logging policy"
            )
            blocks.append(
                better(text, *pair.values(), names=("SHPI", "logging"), topic="data-size", reading="defaults")
            )
    return blocks


EXPERIMENT = Experiment(
    name="data-size",
    title="How many users does it take?",
    source="beyond the paper",
    about="Logs of the uniform policy in the synthetic task, of growing size.",
    cells=cells,
    show=show,
)
