"""The figures of the documentation, made by the library itself: ``python docs/figures.py [name …]``.

Each function is one figure; the same code gives the same file. All take about two CPU-minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

import shpi
from shpi.data.logged import LoggedData
from shpi.envs import tabular
from shpi.envs.rollout import rollout
from shpi.envs.storefront import Storefront
from shpi.learners import OfflineSHPI
from shpi.ope import FQE, SNPDIS, Gate
from shpi.policies import TabularPolicy, UniformPolicy
from shpi.protocols import Float64Array
from shpi.report import svg
from shpi.report.plots.axes import Scale, bottom_axis
from shpi.report.plots.canvas import Canvas
from shpi.report.plots.legend import Key, legend
from shpi.values import Constant

FOLDER = Path(__file__).parent / "figures"
SHOP = Storefront()


def sessions() -> str:
    """Four users of the table in docs/concepts/sessions.md: decisions, sessions, endings."""
    hours = {"ann": [0, 1, 2, 26, 27], "bob": [5, 6], "cem": [3, 4, 20, 21, 22, 43], "dee": [30]}
    rows = [(user, hour, user == "bob" and hour == 6) for user, times in hours.items() for hour in times]
    table = pl.DataFrame(rows, schema=["user", "hour", "left"], orient="row").with_columns(
        time=pl.datetime(2026, 11, 2) + pl.duration(hours="hour"), item=pl.lit("a")
    )
    columns = shpi.Columns(user="user", time="time", action="item", terminated="left", session_gap="4h")
    logs = LoggedData.read(table, columns)
    start = logs.times.min()
    at = (logs.times - start) / 3.6e9  # hours
    canvas = Canvas(680)
    top = legend(canvas, _ending_keys(), 4) + 8
    scale = Scale.over([0, 48], 60, 650)
    bottom = top + 46 * logs.n_trajectories
    end = bottom_axis(canvas, scale, top, bottom, "hours since the log began")
    for i in range(logs.n_trajectories):
        first, last = logs.offsets[i], logs.offsets[i + 1]
        y = top + 46 * i + 24
        canvas.text(2, y + 5, str(logs.users[i]), bold=True)
        starts = [s for s in logs.session_offsets if first <= s < last] + [last]
        for begin, stop in zip(starts[:-1], starts[1:], strict=True):
            low, high = scale(at[begin]), scale(at[stop - 1])
            canvas.rect(low - 9, y - 12, high - low + 18, 24, cls="c0", opacity=0.18)
            for row in range(begin, stop):
                canvas.dot(scale(at[row]), y, 3.5, cls="c0")
            if stop < last:
                canvas.line(high + 13, y, scale(at[stop]) - 13, y, cls="c0", width=1.5, dash="3 4")
        _ending(canvas, scale(at[last - 1]) + 22, y, bool(logs.terminated[i]))
    return canvas.svg(end, "Decisions, sessions and endings of four users", "One line per user.")


def _ending_keys() -> list[Key]:
    def burst(canvas: Canvas, x: float, y: float) -> None:
        canvas.rect(x, y - 8, 20, 16, cls="c0", opacity=0.18)
        canvas.dot(x + 10, y, 3.5, cls="c0")

    return [
        Key(name="session", draw=burst),
        Key(
            name="session end", draw=lambda c, x, y: c.line(x, y, x + 20, y, cls="c0", width=1.5, dash="3 4")
        ),
        Key(name="terminated: gone for good", draw=lambda c, x, y: _ending(c, x + 10, y, True)),
        Key(name="truncated: the log stops", draw=lambda c, x, y: _ending(c, x + 10, y, False)),
    ]


def _ending(canvas: Canvas, x: float, y: float, gone: bool) -> None:
    if gone:
        canvas.line(x - 6, y - 6, x + 6, y + 6, cls="c4", width=3)
        canvas.line(x - 6, y + 6, x + 6, y - 6, cls="c4", width=3)
    else:
        canvas.path([(x - 6, y - 7), (x + 7, y), (x - 6, y + 7)], cls="c1", width=2)


def bonus() -> str:
    """Exact conversions per month of five policies."""
    policies = {
        "uniform, the logging policy": SHOP.uniform(),
        "bandit: the next sale": SHOP.bandit(),
        "session RL: this visit": SHOP.session_rl(),
        "SHPI: this visit, and the bonus": SHOP.shpi(3),
        "optimum: the whole month": SHOP.optimal(),
    }
    return svg.bars(
        list(policies),
        {
            "conversions": [SHOP.exact_value(table) for table in policies.values()],
            "visits": [SHOP.expected_sessions(table) for table in policies.values()],
        },
        title="Conversions and visits per month in the storefront, exact values",
        description="SHPI converts more than session RL because users come back more often.",
        x_label="per user and month",
    )


def horizon() -> str:
    """Return against k, with and without the bonus: exact, and learned from 2,000 users."""
    ks = np.array([1, 2, 3, 4, 6, 8, 10])
    zero = np.zeros(SHOP.n_states)
    moves, rewards, mu = SHOP.transition.copy(), SHOP.expected_reward, SHOP.uniform()
    moves[:, :, -1] = 0.0  # who is gone brings nothing
    exact = [SHOP.exact_value(SHOP.shpi(int(k))) for k in ks]
    blind = [SHOP.exact_value(tabular.improve(moves, rewards, mu, zero, int(k))) for k in ks]
    learned = {name: _learned(ks, value) for name, value in (("with", None), ("without", Constant(0.0)))}
    series = {
        "with the bonus, exact": exact,
        "without it, exact": blind,
        "with, 2,000 users": learned["with"].mean(axis=1),
        "without, 2,000 users": learned["without"].mean(axis=1),
    }
    bands = {
        f"{name}, 2,000 users": (runs.mean(axis=1) - runs.std(axis=1), runs.mean(axis=1) + runs.std(axis=1))
        for name, runs in learned.items()
    }
    return svg.lines(
        ks,
        series,
        bands=bands,
        reference={"logging policy": SHOP.exact_value(mu)},
        dots=True,
        title="Conversions per month against k",
        description="With the bonus a short horizon is enough; without it the horizon must be long.",
        x_label="k, decisions ahead",
        y_label="conversions per user and month; bands: one standard deviation over 8 logs",
    )


def _learned(ks: Float64Array, value: Constant | None) -> Float64Array:
    """Exact values of policies learned from 8 logs [ks, 8]."""
    logs = [SHOP.rollout(UniformPolicy(SHOP.n_actions), 2000, seed=seed) for seed in range(100, 108)]
    options = {} if value is None else {"value": value}
    found = [
        [SHOP.exact_value(OfflineSHPI(k=int(k), **options).fit(one).action_probs(SHOP.contexts))
         for one in logs] for k in ks
    ]  # fmt: skip
    return np.array(found)


def propensities() -> str:
    """The same evaluation with right, estimated, wrong and no propensities."""
    mu = 0.6 * SHOP.uniform() + 0.4 * SHOP.bandit()
    pi = 0.6 * mu + 0.4 * SHOP.shpi(3)
    truth = SHOP.exact_value(pi) - SHOP.exact_value(mu)
    log = rollout(SHOP, _policy(mu), 4000, seed=0)
    without = replace(log, propensities=None, behaviour=None, propensity_mode="absent")
    uniform = replace(log, propensities=np.full(len(log), 0.2), behaviour=None)
    cases = {
        "logged": (log, SNPDIS()),
        "estimated from the log": (without.with_estimated_propensities(seed=0), SNPDIS()),
        "absent: a model instead": (without, FQE()),
        "wrong: assumed to be 1/5": (uniform, SNPDIS()),
    }
    found = [
        shpi.evaluate(_policy(pi), one, estimators=[how], details=False).decisive
        for one, how in cases.values()
    ]
    return svg.forest(
        list(cases),
        [one.lift for one in found],
        [one.lift_interval.lower for one in found],
        [one.lift_interval.upper for one in found],
        faint=[False, False, False, True],
        reference=truth,
        texts=[f"{one.lift:+.3f}" for one in found],
        names=svg.ForestNames(row="estimated lift, 95 % interval", faint="wrong propensities"),
        title="The lift of one policy, with four kinds of propensities",
        description=f"The upright line is the true lift, {truth:+.3f}.",
        x_label=f"lift in conversions per user; the upright line is the truth, {truth:+.3f}",
    )


def gate() -> str:
    """The same policy, judged from logs of growing size."""
    mu, sizes = SHOP.uniform(), (100, 200, 400, 800, 1600, 3200, 6400, 12800)
    table = 0.8 * mu + 0.2 * SHOP.shpi(3)
    truth = SHOP.exact_value(table) - SHOP.exact_value(mu)
    found = [
        shpi.evaluate(
            _policy(table),
            rollout(SHOP, _policy(mu), n, seed=3, keep_behaviour=True),
            gate=Gate(min_lift=0.2),
            details=False,
        )
        for n in sizes
    ]
    ones = [evaluation.decisive for evaluation in found]
    return svg.forest(
        [f"{n:,} users" for n in sizes],
        [one.lift for one in ones],
        [one.lift_interval.lower for one in ones],
        [one.lift_interval.upper for one in ones],
        bounds=[one.lift_interval.lower_bound for one in ones],
        faint=[evaluation.verdict is None or not evaluation.verdict.ship for evaluation in found],
        texts=[evaluation.verdict.decision if evaluation.verdict else "" for evaluation in found],
        reference=0.2,
        names=svg.ForestNames(row="shipped", faint="not shipped", bound="95 % lower bound"),
        title="Verdicts on one policy from logs of growing size",
        description=f"Its true lift is {truth:+.3f}; more than 0.2 is asked for.",
        x_label=f"lift per user; upright line: what the gate asks for (truth: {truth:+.3f})",
    )


def _policy(table: Float64Array) -> TabularPolicy:
    return TabularPolicy(table)  # the first number of a context is the state


FIGURES: dict[str, Callable[[], str]] = {
    "sessions": sessions,
    "bonus": bonus,
    "k": horizon,
    "propensities": propensities,
    "gate": gate,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or FIGURES:
        print(svg.write(FOLDER / f"{name}.svg", FIGURES[name]()))
