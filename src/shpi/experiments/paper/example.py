"""Figure 1, the storefront: exact values of a bandit, session RL and SHPI in the same shop."""

from __future__ import annotations

from shpi.envs.storefront import Storefront
from shpi.experiments._page.compare import better, plain, spread
from shpi.experiments._page.stats import summarise
from shpi.experiments._run import work as plain_work
from shpi.experiments._run import worlds
from shpi.experiments._run.cells import Cell, Log, Outcome
from shpi.experiments._run.experiment import Block, Claim, Experiment, Figure, Results, Table
from shpi.experiments._run.settings import Method, Settings
from shpi.report import svg

EXACT = ("mu, uniform", "bandit", "session RL", "SHPI, k = 3", "optimum")
LEARNED = (
    Method(name="bandit, learned", learner="shpi", k=1, options={"value": "zero"}),
    Method(name="session RL, learned", learner="session-rl"),
    Method(name="SHPI, learned", learner="shpi", k=3),
)


def work(cell: Cell) -> Outcome:
    """The exact conversions per month of a policy, known or learned from a log."""
    shop, seconds = Storefront(), 0.0
    if cell.learner is None:
        makers = (shop.uniform, shop.bandit, shop.session_rl, shop.shpi, shop.optimal)
        table = dict(zip(EXACT, makers, strict=True))[str(cell.options["policy"])]()
    else:
        policy, seconds = plain_work.fit_cached(cell, worlds.simulate(cell.log))
        table = policy.action_probs(shop.contexts)
    values = {"score": shop.exact_value(table), "sessions": shop.expected_sessions(table)}
    return Outcome(values=values, seconds=seconds)


def cells(settings: Settings) -> list[Cell]:
    """The five policies of the figure, and three learned from logs of the uniform policy."""
    story = Log(world="storefront", epsilon=1.0, users=0, seed=0)
    exact = [Cell(method=name, log=story, work="exact", options={"policy": name}) for name in EXACT]
    learned = [
        Cell(
            method=method.name,
            log=log,
            work="exact",
            learner=method.learner,
            k=method.k,
            options=method.options,
        )
        for log in settings.logs("storefront", 1.0)
        for method in LEARNED
    ]
    return exact + learned


def show(results: Results) -> list[Block]:
    """Bars, a table, and whether the policies rank as in the paper."""
    names = [name for name in (*EXACT, *(m.name for m in LEARNED)) if len(results.values(method=name))]
    summaries = {name: summarise(results.values(method=name)) for name in names}
    sessions = {name: float(results.values("sessions", method=name).mean()) for name in names}
    rows = tuple(
        (
            name,
            plain(summaries[name].mean)
            if name in EXACT
            else spread((summaries[name].mean, summaries[name].deviation)),
            plain(sessions[name]),
        )
        for name in names
    )
    drawing = svg.bars(
        names,
        {"conversions per month": [summaries[n].mean for n in names], "visits": [sessions[n] for n in names]},
        title="The storefront: conversions and visits per month",
        description="; ".join(f"{name}: {plain(summaries[name].mean)}" for name in names),
    )
    blocks: list[Block] = [
        Figure("example.svg", "Exact conversions and visits per month", drawing),
        Table("The storefront", ("policy", "conversions per month", "visits per month"), rows),
    ]
    if all(name in summaries for name in EXACT):
        values = [summaries[name].mean for name in EXACT]
        blocks.append(
            Claim(
                "mu < bandit < session RL < SHPI <= optimum, in exact values",
                values[0] < values[1] < values[2] < values[3] <= values[4],
                " < ".join(f"{name} {plain(value)}" for name, value in zip(EXACT, values, strict=True)),
                "story",
                "",
            )
        )
    pair = results.aligned(("SHPI, learned", "session RL, learned"))
    if len(pair) == 2:
        text = "SHPI > session RL when both are learned from the same log of mu"
        blocks.append(
            better(text, *pair.values(), names=("SHPI", "session RL"), topic="story", reading="defaults")
        )
    return blocks


EXPERIMENT = Experiment(
    name="example",
    title="The storefront: a bandit, session RL and SHPI",
    source="Figure 1",
    about="The paper draws a story without numbers. Here it is a finite decision process, so that every "
    "policy has an exact value. Learned policies see a log of the uniform policy; their values are exact "
    "too.",
    cells=cells,
    show=show,
)
