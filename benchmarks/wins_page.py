"""Writes docs/wins.md from the results of `bench_wins`: one line per log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import wins_store
from benchmarks.wins_store import Result
from benchmarks.wins_table import RIVALS, in_errors, mean_of, on_world
from benchmarks.worlds import World

PAGE = Path(__file__).resolve().parents[1] / "docs" / "wins.md"
COLUMNS = {"mu": "mu", "new": "SHPI", "old": "0.1", "bcq": "BCQ", "bandit": "bandit", "spibb": "SPIBB"}
ByMethod = dict[str, dict[int, Result]]


def write(worlds: Sequence[World], seeds: Sequence[int]) -> None:
    """Write the page."""
    results = {method: wins_store.load(method) for method in COLUMNS}
    by_world = {w.name: {m: on_world(results[m], w.name, seeds) for m in COLUMNS} for w in worlds}
    by_world = {name: by_method for name, by_method in by_world.items() if by_method["new"]}
    lines = [
        "# Who wins where",
        "",
        "`python -m benchmarks wins` writes this page: one configuration of every learner on every kind of "
        f"log, seeds {min(seeds)} to {max(seeds)};",
        "no choice was made on them. 0.1 is the learner of version 0.1. *Means* are of the figure that "
        "each world is known for: the final state in the",
        "synthetic task, the sum of rewards in HIV, the attained share of what is possible in finite and",
        "wide worlds (named with their users), rewards per user elsewhere. In brackets: the number of logs, "
        "where some were left out to save time.",
        "",
        _table(["log", *COLUMNS.values(), "logs", "proven", "bound held"], _means(by_world)),
        "",
        "*Differences* are of what the learner promises, the discounted sum of rewards per user, between "
        "policies from the same log and for the same new users,",
        "in standard errors over the logs; in brackets those of the figure above. Below -2 is marked.",
        "",
        _table(["log", "against mu", "against 0.1", "against the best rival"], _differences(by_world)),
        "",
        *_families(by_world),
        "",
    ]
    PAGE.write_text("\n".join(lines), encoding="utf-8")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _means(by_world: dict[str, ByMethod]) -> list[list[str]]:
    rows = []
    for name, by_method in by_world.items():
        ours = by_method["new"].values()
        held = sum(r.lift_lower is not None and r.value - r.mu_value >= r.lift_lower for r in ours)
        rows.append(
            [
                f"`{name}`",
                *(_cell(by_method[m], len(ours)) for m in COLUMNS),
                str(len(ours)),
                str(sum(bool(r.proven) for r in ours)),
                str(held),
            ]
        )
    return rows


def _cell(results: dict[int, Result], logs: int) -> str:
    """The mean, and the number of logs where it is not that of our own learner."""
    if not results:
        return "–"
    mean = _number(mean_of([r.headline for r in results.values()]))
    return mean if len(results) == logs else f"{mean} ({len(results)})"


def _number(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value:.2e}".replace("e+0", "e").replace("e+", "e")
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"


def _differences(by_world: dict[str, ByMethod]) -> list[list[str]]:
    rows = []
    for name, by_method in by_world.items():
        rivals = [m for m in RIVALS if by_method[m]]
        best = max(rivals, key=lambda m: _mean_lead(by_method, m), default="mu")
        cells = [_against(by_method, other) for other in ("mu", "old", best)]
        rows.append([f"`{name}`", *cells[:2], f"{COLUMNS[best]} {cells[2]}" if rivals else "–"])
    return rows


def _mean_lead(by_method: ByMethod, rival: str) -> float:
    """By how much a rival is better than our own learner, on common logs."""
    seeds = set(by_method["new"]) & set(by_method[rival])
    return mean_of([by_method[rival][s].value - by_method["new"][s].value for s in seeds])


def _against(by_method: ByMethod, other: str) -> str:
    seeds = sorted(set(by_method["new"]) & set(by_method[other]))
    if not seeds:
        return "–"
    pairs = [(by_method["new"][s], by_method[other][s]) for s in seeds]
    value = in_errors(np.array([ours.value - theirs.value for ours, theirs in pairs]))
    headline = in_errors(np.array([ours.headline - theirs.headline for ours, theirs in pairs]))
    text = f"{value:+.1f} ({headline:+.1f})"
    return f"**{text}**" if value < -2 else text


def _families(by_world: dict[str, ByMethod]) -> list[str]:
    """The four families of finite worlds together."""
    lines = ["The four families of finite worlds together, attained:", ""]
    rows = []
    for users in (200, 5_000):
        cells = [f"{users:,} users"]
        for method in COLUMNS:
            shares = [
                r.headline
                for name, by_method in by_world.items()
                if name.startswith("finite-") and name.endswith(f"-{users}")
                for r in by_method[method].values()
            ]
            cells.append(_number(mean_of(shares)) if shares else "–")
        rows.append(cells)
    return [*lines, _table(["", *COLUMNS.values()], rows)]
