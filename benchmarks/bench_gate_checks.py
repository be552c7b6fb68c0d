"""The gate's checks of its assumptions: propensities, confounding, time, clusters, looks, training users.

Every figure is a share of logs, from seeds that were not used to choose thresholds. SHPI_CHECK_LOGS: logs per
row (100), SHPI_CHECK_PARTS the parts by name, SHPI_WORKERS the number of processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.check_trials import METHODS, Found, alarm, cost, daily, needed, own_users, ship
from benchmarks.parallel import each
from benchmarks.report import Row

LOGS = int(os.environ.get("SHPI_CHECK_LOGS", "100"))
FIRST_SEED = 50_000
# Worlds in which propensities are right and nothing changes over time.
SOUND = (
    "clickbait", "unmarked churn", "heavy and light users", "rare disaster", "big spenders lost",
    "drifting mu", "small log", "heavy tails", "rare rewards", "user types", "rarely tried action",
    "no lift, looked at daily", "random worlds",
)  # fmt: skip
FALSE = ("overridden decisions", "rarely overridden decisions", "hidden column", "rule changes with time")
# Worlds with various noise levels, where a log of a quarter of the usual users often needs more data.
NEEDED = ("clickbait", "user types", "random worlds", "rare rewards", "small log", "no lift, looked at daily")
LIFT = 0.055


def run() -> list[Row]:
    parts: dict[str, Callable[[], list[Row]]] = {
        "propensities": _propensities,
        "time": _time,
        "ships": _ships,
        "looks": _looks,
        "users": _users,
        "needed": _needed,
        "cost": _cost,
    }
    chosen = os.environ.get("SHPI_CHECK_PARTS", ",".join(parts)).split(",")
    return [row for name in chosen for row in parts[name]()]


def _seeds(count: int = LOGS) -> range:
    return range(FIRST_SEED, FIRST_SEED + count)


def _row(name: str, trials: Sequence[Found], flag: str, goal: str = "") -> Row:
    hits = sum(trial.flags[flag] for trial in trials)
    return Row(name, hits / max(len(trials), 1), "share", f"{hits} of {len(trials)} logs", goal)


def _kinds(trials: Sequence[Found]) -> dict[str, list[Found]]:
    kinds: dict[str, list[Found]] = {}
    for trial in trials:
        kinds.setdefault(trial.kind, []).append(trial)
    return dict(sorted(kinds.items()))


def _propensities() -> list[Row]:
    few = max(LOGS // 2, 1)
    sound = each(alarm, [(name, seed) for name in SOUND for seed in _seeds(few)], "right propensities")
    rows = [_row("right propensities called wrong", sound, "propensities", "<= 0.03")]
    for name in FALSE:
        count = LOGS * (3 if name != "rule changes with time" else 1)
        trials = each(alarm, [(name, seed) for seed in _seeds(count)], name)
        rows += [_row(f"found: {kind}", some, "propensities") for kind, some in _kinds(trials).items()]
    return rows


def _time() -> list[Row]:
    turned = each(alarm, [("turned effect", seed) for seed in _seeds()], "turned effect")
    steady = [name for name in SOUND if name not in ("drifting mu", "unmarked churn", "clickbait")]
    quiet = each(alarm, [(name, seed) for name in steady for seed in _seeds(max(LOGS // 4, 1))], "steady")
    switched = each(alarm, [("arms switched by day", seed) for seed in _seeds()], "switched by day")
    return [
        _row("a turned effect is found", turned, "change", ">= 0.9"),
        _row("a steady one is called changing", quiet, "change", "<= 0.05"),
        _row("days switched as a whole are found", switched, "switched", ">= 0.95"),
        _row("other logs are called switched", quiet, "switched", "<= 0.01"),
    ]


def _ships() -> list[Row]:
    rows = []
    for name in (*FALSE, "arms switched by day", "turned effect", "drifting mu"):
        null = each(ship, [(name, seed, 0.0) for seed in _seeds()], f"{name}, no lift")
        better = each(ship, [(name, seed, 0.2) for seed in _seeds(max(LOGS // 4, 1))], f"{name}, +20 %")
        rows += [
            _row(f"{name}: false ships without cautions", null, "before"),
            _row(f"{name}: false ships", null, "after"),
            *(
                _row(f"{kind}: false ships", some, "after")
                for kind, some in _kinds(null).items()
                if kind != name
            ),
            _row(f"{name}: a lift of 20 % ships without cautions", better, "before"),
            _row(f"{name}: a lift of 20 % ships", better, "after"),
        ]
    return rows


def _looks() -> list[Row]:
    null = each(daily, [(seed, 0.0) for seed in _seeds()], "30 looks, no lift")
    better = each(daily, [(seed, LIFT) for seed in _seeds(max(LOGS // 4, 1))], f"30 looks, +{LIFT:.1%}")
    rows = [_row("30 looks: false ships at the last look alone", null, "last look")]
    for method in METHODS:
        goal = "" if method == METHODS[0] else "<= 0.05"
        days = [trial.numbers[method] for trial in better if trial.flags[method]]
        rows += [
            _row(f"30 looks: false ships, {method}", null, method, goal),
            _row(f"30 looks: +{LIFT:.1%} is shipped, {method}", better, method),
            Row(
                f"30 looks: +{LIFT:.1%} is shipped at look, {method}", float(np.median(days or [0])), "median"
            ),
        ]
    return rows


def _users() -> list[Row]:
    trials = each(own_users, list(_seeds()), "training users")
    return [
        _row("no effect, own training users, unchecked: ships", trials, "own users, unchecked"),
        _row("no effect, own training users: ships", trials, "own users", "<= 0"),
        _row("no effect, own training users but one: ships", trials, "own users but one", "<= 0"),
        _row("no effect, other users: ships", trials, "other users"),
    ]


def _needed() -> list[Row]:
    """Gate.power promises 80 %: with as many fresh users as it asks for, the gate should ship that often."""
    trials = each(needed, [(name, seed) for name in NEEDED for seed in _seeds()], "users needed")
    asked = [trial for trial in trials if trial.flags["asked"]]
    rows = [_row("with as many fresh users as the gate asked for: ships", asked, "shipped", ">= 0.7")]
    return rows + [_row(f"{name}: ships", some, "shipped") for name, some in _kinds(asked).items()]


def _cost() -> list[Row]:
    names = ("clickbait", "user types", "late harm", "hidden column")
    trials = each(cost, [(name, seed) for name in names for seed in _seeds(3)], "cost", workers=1)
    return [
        Row(
            f"{name}: checks as a share of an evaluation",
            sum(trial.numbers["checks"] for trial in some) / sum(trial.numbers["whole"] for trial in some),
            "share",
            f"{sum(trial.numbers['whole'] for trial in some) / len(some):.2f} CPU-s each",
            "<= 0.3",
        )
        for name, some in _kinds(trials).items()
    ]
