"""Strangers' files, from raw data to a verdict on the command line; see `benchmarks.bench_strangers`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from benchmarks.bench_strangers import WORLDS
from benchmarks.strangers.push import Push
from benchmarks.strangers.way import go
from benchmarks.strangers.world import World, simulate

from shpi.data._read.read import read_log
from shpi.data.columns import Columns
from shpi.ope.checks import over_time
from shpi.ope.estimators.importance import SNPDIS
from shpi.ope.problem import Problem
from shpi.policies import ConstantPolicy


@pytest.mark.parametrize("make", WORLDS, ids=lambda make: make.name)
def test_the_table_is_counted_as_the_simulator_counts(make: type[World], tmp_path: Path) -> None:
    """Staggered entry, raw files, a map: the value of mu is the truth within its error."""
    world = make()
    world.write(
        simulate(world, world.behaviour, 1_500, 3, staggered=True).rows, tmp_path, np.random.default_rng(3)
    )
    (tmp_path / "map.toml").write_text(world.columns)
    logs = read_log(tmp_path / world.log, Columns.from_toml(tmp_path / "map.toml"))
    assert logs.counted is not None
    assert 0.2 < logs.counted.observed_less < 0.6
    sums = np.bincount(logs.user_codes[logs.trajectory_of_row], weights=logs.rewards)
    truth = simulate(world, world.behaviour, 20_000, 9, staggered=False).value(world.window)
    assert abs(sums.mean() - truth) < 3 * sums.std(ddof=1) / np.sqrt(len(sums))


@pytest.mark.parametrize(
    "make", [world for world in WORLDS if world.name in ("push", "personalizer")], ids=lambda m: m.name
)
def test_the_way_takes_at_most_eight_commands(make: type[World], tmp_path: Path) -> None:
    outcome = go(make(), tmp_path / "log", 4, 600)
    assert outcome.commands <= 8
    assert outcome.verdict in ("ship", "first step", "hold", "need more data")
    said = (tmp_path / "log" / "evaluate.txt").read_text()
    assert "days after the first decision" in " ".join(said.split())


def test_users_who_came_late_are_no_change_of_the_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed before: they are observed for a few days only, where what tires people still pays."""
    world = Push()
    rows = simulate(world, world.behaviour, 12_000, 8, staggered=True).rows
    world.write(rows, tmp_path, np.random.default_rng(8))
    (tmp_path / "map.toml").write_text(world.columns)
    logs = read_log(tmp_path / world.log, Columns.from_toml(tmp_path / "map.toml"))
    story = np.full(len(logs.action_space), 0.2)
    story[logs.action_space.ids.index("story")] = 0.4
    problem = Problem.of(ConstantPolicy(story), logs)
    estimate = SNPDIS().estimate(problem)
    change = over_time.change_of(problem, estimate)
    assert change is not None
    assert not change.clear
    monkeypatch.setattr(over_time, "observed_throughout", lambda problem, when: np.ones(len(when), bool))
    before = over_time.change_of(problem, estimate)
    assert before is not None
    assert before.clear


def test_the_long_term_effect_is_planted() -> None:
    """What brings most now is not what brings most in the window."""
    for make in WORLDS:
        world = make()
        if len(world.items) > 10:
            continue
        values, at_once = [], []
        for item in range(len(world.items)):

            def always(contexts: pl.DataFrame, candidates: object, item: int = item) -> np.ndarray:
                return np.eye(len(world.items))[np.full(contexts.height, item)]  # noqa: B023 - used at once

            life = simulate(world, always, 4_000, 1, staggered=False)
            values.append(life.value(world.window))
            at_once.append(life.value(1e-9))
        assert np.argmax(values) != np.argmax(at_once), world.name
