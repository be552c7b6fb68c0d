"""Some simulated weeks of the shop: traffic over HTTP, cycles, canaries, and the true values beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shpi.protocols import Float64Array
from shpi.serve.client import Client
from shpi.serve.demo.shop import ITEMS, Probs, Shop, rule
from shpi.serve.demo.traffic import Traffic
from shpi.serve.loop.control import Control
from shpi.serve.loop.cycle import run_cycle
from shpi.serve.policies import LoadedPolicy, Policies
from shpi.serve.web.server import Running

SETTINGS = """[server]
clock = "events"
[decide]
start = "apprentice"
floor = {floor}
[log]
metric = "reward in 3d"
[cycle]
min_users = 200
seed = {seed}
[canary]
stages = [0.25]
users = {users}
look_every = "1h"
"""


@dataclass
class Weeks:
    """What happened."""

    champions: list[str] = field(default_factory=list)  # the champion of each day
    cycles: list[str] = field(default_factory=list)  # the outcome of each cycle
    clicks: list[int] = field(default_factory=list)
    rulings: list[str] = field(default_factory=list)  # the ruling on the canary of each evening
    decisions: int = 0
    promoted: int = 0
    rolled_back: int = 0


def run_weeks(
    folder: Path,
    shop: Shop,
    *,
    days: int = 14,
    learn_on: Sequence[int] = (4, 6, 8, 10, 12),
    arrivals: int = 1000,
    seed: int = 0,
    users: int = 60,
    floor: float = 0.3,
    learner: Any = None,
) -> Weeks:
    """Serve a shop for some days.

    Args:
        folder: a new folder for the service.
        shop: the simulated shop.
        days: number of days.
        learn_on: the evenings on which a cycle runs.
        arrivals: new customers per day.
        seed: random seed of customers and learner.
        users: users with known rewards that each arm needs before a stage of a canary is over.
        floor: exploration floor; large, since the rule alone does not explore and two weeks are short.
        learner: used in place of the settings' learner.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "serve.toml").write_text(SETTINGS.format(seed=seed, users=users, floor=floor), encoding="utf-8")
    weeks, traffic = Weeks(), Traffic(shop, arrivals=arrivals, seed=seed)
    with Running(folder) as server:
        client = Client(server.url, timeout=60)
        for day in range(days):
            weeks.champions.append(Control.read(folder).champion)
            weeks.clicks.append(traffic.run_day(client))
            ruling = server.look()
            weeks.rulings.append(f"{ruling.move}: {ruling.why}")
            if day in learn_on:
                weeks.cycles.append(str(run_cycle(folder, learner=learner)))
                server.look()
    history = Control.read(folder).history
    weeks.decisions = traffic.decisions
    weeks.promoted = sum(entry.what == "promoted" for entry in history)
    weeks.rolled_back = sum(entry.what == "rolled back" for entry in history)
    return weeks


def served_by(folder: Path, name: str, floor: float = 0.3) -> Probs:
    """The probabilities with which a champion serves, exploration included, for its true value."""
    if name == "apprentice":
        return rule(floor)
    policies = Policies(folder, floor)
    policies.load(name)
    loaded = policies.get(name)
    assert isinstance(loaded, LoadedPolicy)
    ids, mix = list(loaded.chooser.ids), loaded.mix
    other = None if mix is None else served_by(folder, mix.over, floor)

    def probs(contexts: list[dict[str, Any]]) -> Float64Array:
        x = np.stack([loaded.chooser.encode(context) for context in contexts])
        own = loaded.policy.action_probs(x) * (1 - floor) + floor / len(ids)
        own = own[:, [ids.index(item) for item in ITEMS]]
        if mix is None or other is None:
            return own
        return np.asarray(mix.share * own + (1 - mix.share) * other(contexts))

    return probs
