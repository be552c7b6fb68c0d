"""The table of `bench_wins`: means of every method on every log, paired differences, and the goals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks import wins_store
from benchmarks.report import Row
from benchmarks.wins_store import Result
from benchmarks.worlds import World
from shpi.protocols import Float64Array

SHOWN = ("mu", "new", "old", "bandit", "bcq", "spibb", "constant")
RIVALS = ("bandit", "bcq", "spibb")
NOISE = 2.0  # a paired difference within this many standard errors counts as none
GOALS = {"storefront-uniform": ">= 2.35", "finite-200": ">= 0.90", "finite-5000": ">= 0.98"}
HELD = "hiv-1"  # the log on which a rival may be better


def table(worlds: Sequence[World], seeds: Sequence[int]) -> list[Row]:
    """Headline scores and their differences, log by log; then the four families together."""
    results = {method: wins_store.load(method) for method in SHOWN}
    rows: list[Row] = []
    for world in worlds:
        rows += _rows_of(world.name, {m: on_world(results[m], world.name, seeds) for m in SHOWN})
    for users in (200, 5_000):
        attained = [r.headline for r in results["new"] if _in_family(r, users) and r.seed in seeds]
        if attained:
            name = f"finite-{users}"
            note = f"{len(attained)} worlds, worst {min(attained):.2f}"
            rows.append(Row(f"{name}, all families: new", mean_of(attained), "share", note, GOALS[name]))
    return rows


def on_world(results: Sequence[Result], world: str, seeds: Sequence[int]) -> dict[int, Result]:
    return {result.seed: result for result in results if result.world == world and result.seed in seeds}


def _rows_of(world: str, by_method: dict[str, dict[int, Result]]) -> list[Row]:
    rows = [
        Row(
            f"{world}: {method}",
            mean_of([r.headline for r in results.values()]),
            "headline",
            _note(results),
            GOALS.get(world, "") if method == "new" else "",
        )
        for method, results in by_method.items()
        if results
    ]
    ours = by_method["new"]
    if not ours:
        return rows
    others = {method: results for method, results in by_method.items() if results and method in RIVALS}
    best = max(others, key=lambda m: mean_of([r.headline for r in others[m].values()]), default=None)
    for other in ("mu", "old", best):
        if other is None or not by_method[other]:
            continue
        goal = "" if other == best and world == HELD else f">= -{NOISE:g}"
        label = f"best rival, {other}" if other == best else other
        rows.append(_compared(f"{world}: new against {label}", ours, by_method[other], goal))
    return rows


def _compared(name: str, ours: dict[int, Result], theirs: dict[int, Result], goal: str) -> Row:
    """The paired difference of headline scores in standard errors; that of the discounted sum in the note."""
    seeds = sorted(set(ours) & set(theirs))
    headline = np.array([ours[s].headline - theirs[s].headline for s in seeds])
    value = np.array([ours[s].value - theirs[s].value for s in seeds])
    note = f"headline {headline.mean():+.4g}; discounted {value.mean():+.4g}, {in_errors(value):+.1f} s.e."
    return Row(name, in_errors(headline), "s.e.", f"{note}; {len(seeds)} logs", goal)


def _note(results: dict[int, Result]) -> str:
    headlines = [r.headline for r in results.values()]
    parts = [f"± {_error(np.array(headlines)):.2g}", f"{len(results)} logs"]
    parts.append(f"{mean_of([r.seconds for r in results.values()]):.1f} CPU-s")
    proven = [r.proven for r in results.values() if r.proven is not None]
    if proven:
        parts.append(f"proven {sum(proven)}")
    lowers = [(r.lift_lower, r.value - r.mu_value) for r in results.values() if r.lift_lower is not None]
    if lowers:
        parts.append(f"bound held {sum(true >= lower for lower, true in lowers)}")
    if len({r.code for r in results.values()}) > 1:
        parts.append("of several versions of the code")
    return ", ".join(parts)


def _in_family(result: Result, users: int) -> bool:
    return result.world.startswith("finite-") and result.world.endswith(f"-{users}")


def mean_of(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _error(values: Float64Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def in_errors(differences: Float64Array) -> float:
    """The mean in standard errors; 0 if there is no difference at all."""
    if not np.any(differences):
        return 0.0
    return float(differences.mean() / max(_error(differences), 1e-12 * np.abs(differences).max()))
