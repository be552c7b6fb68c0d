"""Cells that really run, in a micro setting."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shpi.cli.main import main
from shpi.envs import Storefront, make
from shpi.errors import ConfigError
from shpi.experiments import catalogue
from shpi.experiments._run import worlds
from shpi.experiments._run.cells import Cell, Log
from shpi.experiments._run.settings import CB, LOGGING, OURS, Method, Settings
from shpi.experiments._run.work import find, make_learner, run, try_policy
from shpi.experiments.paper.mse import Replay
from shpi.policies import UniformPolicy

TINY = Settings(seeds=(0,), quick=True)
LOG = Log(world="synthetic", epsilon=1.0, users=30, seed=3, params={"horizon": 30})
BROUGHT = replace(OURS, options={**OURS.options, "value": "lstd", "tested": False})  # with a V from outside


@pytest.fixture(autouse=True)
def _lines_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bandit's ridge tries curves too, at ten times the cost; nothing here depends on them."""
    monkeypatch.setattr("shpi.oracles.ridge.may_curve", lambda width, use: False)


def small(method: Method, log: Log = LOG, **changes: object) -> Cell:
    return replace(method.on(log, TINY), rollouts=10, **changes)  # type: ignore[arg-type]


def values_kept() -> int:
    return sum(key.startswith("value ") for key in worlds._cache)


def test_logging_policy_and_learner_are_tried_on_the_same_users() -> None:
    mu, cb = run(small(LOGGING)), run(small(CB))
    assert set(mu.values) == set(cb.values) == {"score", "attained"}
    assert mu.seconds == 0.0
    assert cb.seconds > 0.0
    assert run(small(CB)).values == cb.values  # the same cell, the same numbers


def test_the_log_and_its_value_are_made_once() -> None:
    first = worlds.simulate(LOG)
    assert worlds.simulate(LOG) is first
    assert worlds.simulate(replace(LOG, variant="by another name")) is first
    alone = run(small(replace(BROUGHT, k=2))).values
    other = replace(LOG, seed=4)
    assert worlds.simulate(other) is not first
    kept = [run(small(replace(BROUGHT, k=k))).values for k in (5, 2)]
    assert kept[1] == alone  # V of another cell of the log changes nothing
    assert values_kept() == 1
    run(small(OURS))  # which estimates V in every round by itself
    assert values_kept() == 1


def test_a_value_that_is_kept_serves_backshift_too() -> None:
    shifted = small(replace(BROUGHT, k=2, options={**BROUGHT.options, "backshift": True}))
    worlds.simulate(replace(LOG, seed=4))
    alone = run(shifted).values
    worlds.simulate(replace(LOG, seed=4))
    run(small(replace(BROUGHT, k=2)))
    assert run(shifted).values == alone


@pytest.mark.parametrize("backshift", [False, True])
def test_a_clone_that_is_kept_changes_nothing_and_its_seconds_count(backshift: bool) -> None:
    options, log = {"backshift": True} if backshift else {}, replace(LOG, users=12)
    cells = [small(replace(OURS, k=k, options=options), log) for k in (1, 5)]
    cells = cells if backshift else [small(CB, log), *cells]  # the bandit knows no backshift
    alone = []
    for cell in cells:
        fresh = make_learner(cell).fit(worlds.simulate(log))  # as a user would
        alone.append(try_policy(cell, fresh))
    worlds.simulate(replace(log, seed=4))
    outcomes = [run(cell) for cell in cells]
    assert [outcome.values for outcome in outcomes] == alone
    clones = [key for key in worlds._cache if key.startswith("clone ")]
    assert len(clones) == 1
    assert all(outcome.seconds >= worlds._cache[clones[0]][1] for outcome in outcomes)
    worlds._cache[clones[0]] = worlds._cache[clones[0]][0], 1000.0
    assert run(replace(cells[1], k=2)).seconds > 1000.0
    worlds.simulate(replace(log, seed=4))
    assert [run(cell).values for cell in reversed(cells)] == alone[::-1]  # in any order


def test_the_learner_of_every_cell_can_be_made() -> None:
    """Settings that contradict each other are found here, not after hours of a full run."""
    pytest.importorskip("torch", reason="the paper's learners have networks")
    cells = [cell for name in catalogue.names() for cell in catalogue.find(name).cells(Settings(data=True))]
    learning = [cell for cell in cells if cell.work in ("learn", "exact") and cell.learner is not None]
    assert len(learning) > 100
    for cell in learning:
        assert hasattr(make_learner(cell), "fit")


def test_the_storefront_in_exact_values() -> None:
    cell = Cell(method="x", log=Log(world="storefront", epsilon=1.0, users=0, seed=0), work="exact",
                options={"policy": "session RL"})  # fmt: skip
    shop = Storefront()
    assert run(cell).values["score"] == shop.exact_value(shop.session_rl())


def test_clicks_are_learned_from_and_the_long_term_reward_is_judged() -> None:
    log = Log(world="recogym", epsilon=1.0, users=10, seed=0, params={"reward": "click"})
    clicks = run(small(LOGGING, log, test={"reward": "ltr"})).values["score"]
    ltr = run(small(LOGGING, replace(log, params={"reward": "ltr"}))).values["score"]
    assert clicks == ltr
    rewards = worlds.simulate(log).rewards
    assert rewards is not None
    assert set(np.unique(rewards)) <= {0.0, 1.0}


def test_online_and_hybrid_share_their_work() -> None:
    log = Log(world="storefront", epsilon=1.0, users=100, seed=0)
    cell = Cell(method="x", log=log, work="online", options={"episodes": 100}, rollouts=50)
    alone = run(cell)
    both = run(replace(cell, options={"episodes": 100, "start": "log"}))
    assert 0 < alone.values["score"] < 3
    assert 0 < both.values["score"] < 3


def test_replay_follows_the_logged_actions_and_sees_their_rewards() -> None:
    logs = worlds.simulate(LOG)
    times = np.array([0, 3, 10])
    cell = small(LOGGING)
    replay = Replay(cell, logs.actions, logs.offsets, times, 1)
    world = make("synthetic", horizon=30)
    contexts = world.reset(3, LOG.seed)
    for t in range(11):
        rows = logs.offsets[:3] + t
        assert np.allclose(contexts, logs.contexts[rows], atol=1e-4)
        contexts = world.step(logs.actions[rows].astype(np.int64)).contexts
    # Under mu alone, one step of mu and one of pi = mu are the same thing.
    mu = replay.mu
    assert np.allclose(replay.value(mu, 1), replay.value(mu, 150))
    # What does not depend on the policy is kept.
    assert np.array_equal(replay.value_of_mu(), replay.value(UniformPolicy(10), 1))
    assert np.array_equal(
        replay.value_of_mu(logged_first=False), replay.value(UniformPolicy(10), 0, logged_first=False)
    )
    assert not np.array_equal(replay.value_of_mu(), replay.value_of_mu(logged_first=False))
    assert replay.value_of_mu() is replay.value_of_mu()


def test_mse_of_a_tiny_log_is_finite() -> None:
    from shpi.experiments.paper.mse import cells

    cell = next(c for c in cells(TINY) if c.method == OURS.name and c.log.epsilon == 1.0)
    cell = replace(cell, log=LOG, options={**cell.options, "states": 5, "replays": 2})
    values = run(cell).values
    assert len(values) == 6
    assert all(np.isfinite(value) and value > 0 for value in values.values())


def test_work_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="work among"):
        find("nothing")


def test_the_command_resumes_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["reproduce", "example", "--quick", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert "8 cells run, 0 were there already" in capsys.readouterr().err
    assert main(arguments) == 0
    assert "0 cells run, 8 were there already" in capsys.readouterr().err
    text = (tmp_path / "README.md").read_text()
    assert "reproduced" in text
    assert str(tmp_path) not in text
    assert (tmp_path / "index.html").is_file()
    runs = json.loads((tmp_path / "run.json").read_text())
    earlier = runs[0] | {"commit": "of other rows", "command": "shpi reproduce long-ago"}
    (tmp_path / "run.json").write_text(json.dumps([earlier, *runs]))
    page = ["reproduce", "recogym", "--page", "--quick", "--seeds", "1", "--out", str(tmp_path)]
    assert main(page) == 0
    text = (tmp_path / "README.md").read_text()
    assert "## example" in text  # its rows are in the folder
    assert "cells not run yet" in text.partition("## recogym")[2]
    assert "in 2 run(s)" in text
    assert "long-ago" not in text  # its rows are gone


def test_the_command_refuses_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "figure-99", "--out", str(tmp_path)]) == 2
    assert "an experiment among example" in capsys.readouterr().err
    assert main(["reproduce", "example", "--seeds", "0", "--out", str(tmp_path)]) == 2
    assert "--seeds of at least 1" in capsys.readouterr().err
    assert main(["reproduce"]) == 2
    assert "recogym" in capsys.readouterr().out


def test_private_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SHPI_DATA", raising=False)
    assert main(["reproduce", "private", "--quick", "--out", str(tmp_path)]) == 0
    assert "needs KuaiRand's files" in capsys.readouterr().err
    assert "needs KuaiRand's files" in (tmp_path / "README.md").read_text()
