"""Weeks of a simulated shop through `shpi serve`: true gains, rollbacks of worse policies, false promotions.

    two weeks   over HTTP, from the old rule as apprentice, with drift: the true value in the end
    worse       a policy that is worse by construction: the gate must stop it, and without the gate the canary
                must roll it back
    nothing     all items are equally good: nothing may be promoted

SHPI_SHOP_RUNS sets the runs of the last two (100; 0 leaves them out), SHPI_SHOP_WEEKS the seeds of the first
(3), SHPI_SHOP_SEED the first seed (100). Every run is printed when it is over. Seeds 1 and 2 were used during
development and are not reported.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Row
from shpi.data.logged import LoggedData
from shpi.features import Identity
from shpi.policies import LinearScorer, Policy, Softmax, save_policy
from shpi.serve.client import Client
from shpi.serve.demo import Shop, Traffic
from shpi.serve.demo.weeks import SETTINGS, run_weeks, served_by
from shpi.serve.loop.control import Control
from shpi.serve.loop.cycle import run_cycle
from shpi.serve.web.server import Running

RUNS = int(os.environ.get("SHPI_SHOP_RUNS", "100"))
WEEKS = int(os.environ.get("SHPI_SHOP_WEEKS", "3"))
FIRST_SEED = int(os.environ.get("SHPI_SHOP_SEED", "100"))


def run() -> Iterator[Row]:
    yield from _two_weeks()
    if RUNS:
        yield from _stopped()
        yield from _nothing_learned()


def _stopped() -> Iterator[Row]:
    passed, unnoticed = 0, 0
    for seed in range(FIRST_SEED, FIRST_SEED + RUNS):
        passed += _offered(seed)
        unnoticed += not _rolled_back(seed)
        print(f"  seed {seed}: so far {passed} past the gate, {unnoticed} not rolled back", flush=True)
    yield Row(f"worse policies past the gate, of {RUNS}", float(passed), "")
    stopped = 100 * (1 - passed * unnoticed / RUNS**2)
    yield Row("… canaries of them that were not rolled back", float(unnoticed), "")
    yield Row("… stopped by the one or the other", stopped, "%", "", ">= 95")


def _nothing_learned() -> Iterator[Row]:
    promoted = 0
    for seed in range(FIRST_SEED, FIRST_SEED + RUNS):
        promoted += _nothing(seed)
        print(f"  seed {seed}: so far {promoted} with nothing to learn promoted", flush=True)
    yield Row(
        f"services with nothing to learn that promoted, of {RUNS}",
        float(promoted),
        "",
        "",
        f"<= {RUNS // 20}",
    )


def _two_weeks() -> Iterator[Row]:
    shop = Shop()
    for seed in range(FIRST_SEED, FIRST_SEED + WEEKS):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "shop"
            weeks = run_weeks(folder, shop, seed=seed)
            last = Control.read(folder).champion
            names = ("apprentice", last)
            before, after = (
                shop.value(served_by(folder, name), users=20_000, days=7, seed=1, first_day=8)
                for name in names
            )
            note = (
                f"{weeks.promoted} promoted, {weeks.rolled_back} rolled back, {weeks.decisions:,} decisions"
            )
            print(f"  seed {seed}: {before:.4f} by the rule, {after:.4f} by {last}; {note}", flush=True)
            yield Row(f"seed {seed}: true clicks per customer and week, the rule", before, "")
            yield Row(f"seed {seed}: … who serves in the end ({last})", after, "", note, f">= {before:.4f}")


# ---------------------------------------------------------------------- worse by construction


@dataclass(frozen=True)
class Worse:
    """A learner with a sign error: it shows what is clicked least."""

    def fit(self, logs: LoggedData) -> Policy:
        """A policy that always shows the worst item."""
        assert logs.rewards is not None
        features = Identity().fit(logs.contexts[:1])
        means = [logs.rewards[logs.actions == a].mean() for a in range(logs.n_actions)]
        weights = np.zeros((logs.n_actions, features.width))
        weights[:, 0] = -20 * np.array(means)
        return Softmax(LinearScorer(weights, features))


def _service(place: str, seed: int) -> Path:
    folder = Path(place) / "shop"
    folder.mkdir()
    (folder / "serve.toml").write_text(SETTINGS.format(seed=seed, users=60, floor=0.3), encoding="utf-8")
    return folder


def _offered(seed: int) -> bool:
    """Whether the gate passes a worse policy."""
    with tempfile.TemporaryDirectory() as place:
        folder, traffic = _service(place, seed), Traffic(Shop(), arrivals=120, seed=seed)
        with Running(folder) as server:
            client = Client(server.url, timeout=60)
            for _ in range(5):
                traffic.run_day(client)
        return run_cycle(folder, learner=Worse()).changed


def _rolled_back(seed: int) -> bool:
    """Whether a worse policy that skipped the gate is rolled back before it is promoted."""
    with tempfile.TemporaryDirectory() as place:
        folder, traffic = _service(place, seed), Traffic(Shop(), arrivals=150, seed=seed)
        with Running(folder) as server:
            client: Any = Client(server.url, timeout=60)
            for day in range(14):
                traffic.run_day(client)
                server.look()
                control = Control.read(folder)
                if day == 4:
                    _smuggle(folder, control, server)
                elif day > 4 and control.canary is None:
                    break
        return Control.read(folder).history[-1].what == "rolled back"


def _smuggle(folder: Path, control: Control, server: Running) -> None:
    from shpi.serve.loop.compact import compact

    logs, _ = compact(folder)
    save_policy(
        Worse().fit(logs), folder / "policies" / "worse", schema=logs.schema, actions=logs.action_space
    )
    assert server.app is not None
    control.with_canary("worse", "past the gate", server.app.service.monitor.last_time).write(folder)
    server.look()


# ---------------------------------------------------------------------- nothing to learn


def _nothing(seed: int) -> bool:
    """Whether anything is promoted although nothing can be gained."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "shop"
        weeks = run_weeks(
            folder, Shop(alike=True, season=None), days=10, learn_on=(3, 5), arrivals=120, seed=seed, users=40
        )
        return weeks.promoted > 0
