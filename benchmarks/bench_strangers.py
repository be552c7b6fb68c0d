"""Four logs in foreign formats, from raw files to a verdict on the command line, compared with the truth.

    python -m benchmarks strangers                     20 seeds of each; about 40 minutes
    STRANGERS_SEEDS=2 STRANGERS_USERS=1500 python -m benchmarks strangers

Every run is printed when it is done, and kept in build/strangers.jsonl, from which a stopped run resumes. All
of them together make docs/outsiders-logs.md. Goals: the true lift lies in the interval in at least 93 % of
the runs; the value of the logging policy is right on average; no more than eight commands.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.report import Row
from benchmarks.strangers.news import News
from benchmarks.strangers.page import page
from benchmarks.strangers.personalizer import Personalizer
from benchmarks.strangers.push import Push
from benchmarks.strangers.shop import Shop
from benchmarks.strangers.way import Outcome, go, quiet, value_of_mu
from benchmarks.strangers.world import World

WORLDS: tuple[type[World], ...] = (Shop, Push, News, Personalizer)
FIRST_SEED, SEEDS = 500, 20
COVERED = 0.93
ROOT = Path(__file__).resolve().parents[1]
KEPT = Path(os.environ.get("STRANGERS_KEPT", ROOT / "build" / "strangers.jsonl"))
PAGE = Path(os.environ.get("STRANGERS_PAGE", ROOT / "docs" / "outsiders-logs.md"))


def run() -> list[Row]:
    quiet()
    seeds = int(os.environ.get("STRANGERS_SEEDS", SEEDS))
    only = os.environ.get("STRANGERS_ONLY")
    size = os.environ.get("STRANGERS_USERS")
    kept = {} if size else _kept()
    rows: list[Row] = []
    for make in WORLDS:
        world = make()
        if only is not None and world.name != only:
            continue
        outcomes = []
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            outcome = kept.get((world.name, seed)) or _fresh(world, seed, int(size or world.logged))
            outcomes.append(outcome)
            if not size and (world.name, seed) not in kept:
                kept[world.name, seed] = outcome
                KEPT.parent.mkdir(parents=True, exist_ok=True)
                with KEPT.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
            print(_line(outcome), file=sys.stderr, flush=True)
        rows += _rows(world, outcomes)
    if not size:
        worlds = {world.name: world for world in (make() for make in WORLDS)}
        mu = {name: value_of_mu(worlds[name])[0] for name, _ in kept}
        PAGE.write_text(page(list(kept.values()), mu), encoding="utf-8")
    return rows


def _kept() -> dict[tuple[str, int], Outcome]:
    """Earlier runs, by world and seed."""
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    outcomes = [Outcome(**json.loads(line)) for line in lines]
    return {(outcome.world, outcome.seed): outcome for outcome in outcomes}


def _fresh(world: World, seed: int, users: int) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        return go(world, Path(folder) / world.name, seed, users)


def _line(run: Outcome) -> str:
    return (
        f"{run.world:13s} {run.seed} mu {run.true_mu:.3f} (log {run.by_hand:.3f})  pi {run.true_pi:.3f}  "
        f"lift {run.lift:+.3f}  estimated {run.estimate:+.3f} [{run.lower:+.3f}, {run.upper:+.3f}] "
        f"{'in ' if run.covered else 'OUT'} {run.verdict} by {run.main}"
    )


def _rows(world: World, runs: list[Outcome]) -> list[Row]:
    name = world.name
    covered = float(np.mean([run.covered for run in runs]))
    lifts, values = np.array([run.lift for run in runs]), np.array([run.by_hand for run in runs])
    mu, mu_error = value_of_mu(world)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
    shipped = np.array([run.verdict == "ship" for run in runs])
    harmful = int(np.sum(shipped & (lifts <= 0)))
    estimated = float(np.mean([run.estimate for run in runs]))
    off = abs(float(values.mean()) - mu) / float(np.hypot(error, mu_error))
    return [
        Row(
            f"{name}: true lift",
            100 * float(lifts.mean()) / mu,
            "%",
            f"of {mu:.3f}; estimated {estimated / mu:+.1%}",
        ),
        Row(
            f"{name}: true lift in its interval",
            100 * covered,
            "%",
            f"{len(runs)} logs",
            f">= {100 * COVERED:g}",
        ),
        Row(
            f"{name}: value of mu",
            off,
            "standard errors",
            f"table {values.mean():.4f}, truth {mu:.4f}",
            "<= 3",
        ),
        Row(f"{name}: shipped", float(shipped.sum()), "logs", f"of {len(runs)}"),
        Row(f"{name}: shipped wrongly", float(harmful), "logs", goal="<= 1"),
        Row(f"{name}: commands", float(runs[0].commands), "", goal="<= 8"),
    ]
