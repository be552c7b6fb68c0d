from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shpi import LoggedData
from shpi.cli import main
from shpi.errors import ConfigError
from shpi.serve.demo import Shop, Traffic
from shpi.serve.demo.shop import ITEMS, rule
from shpi.serve.loop.canary import Health, judge
from shpi.serve.loop.compact import compact, joined
from shpi.serve.loop.compare import Sums, difference
from shpi.serve.loop.control import Control, changing
from shpi.serve.loop.forget import forget
from shpi.serve.loop.monitor import Monitor
from shpi.serve.settings import Settings
from shpi.serve.store import Decision
from tests.serve.events import decision, reward
from tests.serve.http import Wire, on_wire

EVENTS = '[server]\nclock = "events"\n'
DAY = 86_400_000_000


# ---------------------------------------------------------------------- compaction


def test_the_log_is_what_was_answered(tmp_path: Path) -> None:
    answers = {}

    async def work(wire: Wire) -> None:
        rng = np.random.default_rng(0)
        for n in range(300):
            user, when = f"u{n % 60}", 1.8e9 + n * 400
            items = list(ITEMS[: 3 + n % 3])
            context = {"hour": n % 24, "kind": "ab"[n % 2], "vip": n % 5 == 0, "deep": {"x": n / 7}}
            answer = await wire.rank(
                user=user, time=when, candidates=items, context=context, event_id=f"e{n}", defer=n % 10 == 9
            )
            answers[n] = (user, answer)
            if n % 20 == 19:
                await wire.call("POST", f"/v1/events/e{n}/activate")
            if rng.random() < 0.4:
                body = {"value": 1.0, "at": when + 5}
                for repeated in (
                    {**body, "reward_id": "a"},
                    {**body, "reward_id": "a"},
                    {**body, "reward_id": "b"},
                ):
                    await wire.call("POST", f"/v1/events/e{n}/reward", repeated)
                answers[n] = (user, {**answer, "reward": 2.0})
            await wire.call("POST", f"/v1/events/e{n}/reward", {"value": 3, "name": "spend", "at": when + 6})
        await wire.call("POST", "/v1/events/orphan/reward", {"value": 1e9, "at": 1.8e9})

    on_wire(tmp_path, work, EVENTS)
    logs, path = compact(tmp_path)
    assert LoggedData.read(path).fingerprint() == logs.fingerprint()
    assert logs.audit().fit
    old = [n for n in answers if n * 400 <= 299 * 400 - 3600 and (n % 10 != 9 or n % 20 == 19)]
    assert len(logs) == len(old)
    wanted = sorted((answers[n][0], n, answers[n][1]) for n in old)
    order = [answer for _, _, answer in sorted(wanted, key=lambda row: (row[0], row[1]))]
    assert logs.propensities is not None
    assert logs.propensities.tolist() == [logged["propensity"] for logged in order]
    assert [logs.action_space.ids[a] for a in logs.actions] == [logged["action"] for logged in order]
    assert logs.rewards is not None
    assert logs.rewards.tolist() == [logged.get("reward", 0.0) for logged in order]
    assert logs.metrics["spend"].tolist() == [3.0] * len(order)
    assert logs.candidates is not None
    assert logs.behaviour is not None
    assert logs.candidates.sum(axis=1).tolist() == [len(logged["ranking"]) for logged in order]
    assert {"hour", "vip", "deep.x", "kind=a"} <= set(logs.schema.dimensions)
    assert logs.final_observed.any()  # the first decision whose rewards are under way
    assert main(["audit", str(path)]) == 0
    assert main(["serve", "compact", str(tmp_path)]) == 0


def test_an_item_that_was_never_taken_is_in_the_log(tmp_path: Path) -> None:
    async def work(wire: Wire) -> None:
        for n in range(40):
            await wire.rank(
                user=f"u{n % 9}", time=1.8e9 + n * 4000, candidates=["a", "b", "never"], event_id=f"e{n}"
            )

    on_wire(tmp_path, work, EVENTS + '[decide]\nstart = "apprentice"\nfloor = 1e-9\n')
    logs, _ = compact(tmp_path)
    assert set(logs.actions.tolist()) == {0}  # the first choice, but for a chance of one in a billion
    assert logs.action_space.ids == ("a", "b", "never")
    assert logs.behaviour is not None
    assert np.allclose(logs.behaviour.sum(axis=1), 1.0)


def test_rewards_are_joined_as_asked() -> None:
    rewards = [reward(1, value=v, reward_id=str(v)) for v in (3.0, 1.0, 2.0)]
    moved = [
        type(given)(given.event_id, given.name, given.reward_id, given.value, t, b"")
        for t, given in enumerate(rewards)
    ]
    assert joined(moved[::-1], "sum") == 6
    assert joined(moved[::-1], "earliest") == 3
    assert joined(moved[::-1], "last") == 2
    assert joined(moved[::-1], "max") == 3


def test_forgetting_a_user_leaves_no_trace(tmp_path: Path) -> None:
    async def work(wire: Wire) -> None:
        for n in range(30):
            await wire.rank(
                user=f"user-{n % 3}", time=1.8e9 + n * 4000, candidates=list(ITEMS), event_id=f"e{n}"
            )
            await wire.call("POST", f"/v1/events/e{n}/reward", {"value": 1, "at": 1.8e9 + n * 4000})
        with pytest.raises(ConfigError, match="one server per folder"):
            forget(tmp_path, "user-1")

    on_wire(tmp_path, work, EVENTS)
    compact(tmp_path)
    assert main(["serve", "forget", str(tmp_path), "user-1"]) == 0
    assert not (tmp_path / "log.parquet").exists()
    assert not any(b"user-1" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    async def later(wire: Wire) -> None:
        assert (await wire.call("GET", "/v1/events/e1"))[0] == 404
        assert (await wire.call("GET", "/v1/events/e2"))[0] == 200

    on_wire(tmp_path, later)
    logs, _ = compact(tmp_path)
    assert set(logs.users.tolist()) == {"user-0", "user-2"}


# ---------------------------------------------------------------------- control


def test_control_goes_forth_and_back(tmp_path: Path) -> None:
    control = Control.new("uniform", 1)
    control = control.with_canary("a", "w", 2).next_stage("w", 3).promoted("w", 4)
    assert control.champion == "a"
    control = control.with_canary("b", "w", 5).promoted("w", 6)
    assert control.earlier_champion() == "a"
    back = control.rolled_back("w", 7)
    assert (back.champion, back.earlier_champion()) == ("a", "uniform")
    assert back.rolled_back("w", 8).champion == "uniform"
    with pytest.raises(ConfigError, match="nothing to roll back"):
        back.rolled_back("w", 8).rolled_back("w", 9)
    with pytest.raises(ConfigError, match="no other canary"):
        control.with_canary("c", "w", 7).with_canary("d", "w", 8)
    control.write(tmp_path)
    assert Control.read(tmp_path) == control
    with changing(tmp_path) as current:
        assert current == control


def test_rollback_by_hand_takes_less_than_a_second(tmp_path: Path) -> None:
    from tests.serve.test_web import CONTEXT, with_champion

    with_champion(tmp_path)

    async def work(wire: Wire) -> None:
        assert wire.service.control.champion == "p1"
        assert main(["serve", "status", str(tmp_path)]) == 0  # everything is imported
        began = time.monotonic()
        assert main(["serve", "rollback", str(tmp_path), "--why", "a test"]) == 0
        assert wire.service.follow()  # a server looks five times a second
        assert time.monotonic() - began < 0.8
        assert (await wire.rank(context=CONTEXT, candidates=["i1"]))["policy"] == "uniform"

    on_wire(tmp_path, work)
    assert main(["serve", "status", str(tmp_path)]) == 0
    assert Control.read(tmp_path).history[-1].why == "a test"


# ---------------------------------------------------------------------- arms


def false_rate(looks: int, runs: int, seed: int) -> float:
    """How often an equal arm is called worse, with a look after every few users."""
    rng, false = np.random.default_rng(seed), 0
    for _ in range(runs):
        first, second, called = Sums(), Sums(), False
        for _ in range(looks):
            for value in (rng.random(20) < 0.1).astype(float):
                (first if rng.random() < 0.2 else second).add(value)
            gap = difference([(first, second)], alpha=0.05, planned=200)
            called = called or (gap is not None and gap.worse)
        false += called
    return false / runs


def test_two_hundred_looks_are_not_two_hundred_chances() -> None:
    assert false_rate(looks=200, runs=60, seed=5) <= 0.05


def test_a_difference_is_found_and_strata_do_not_confound() -> None:
    rng = np.random.default_rng(0)
    strata = []
    for level, share in ((0.0, 0.02), (5.0, 0.2)):  # a better day, on which more users are in the canary
        first, second = Sums(), Sums()
        for value in rng.normal(level, 1.0, 4000):
            (first if rng.random() < share else second).add(value)
        strata.append((first, second))
    overall = difference(strata, alpha=0.05, planned=200)
    assert overall is not None
    assert not overall.better
    assert not overall.worse
    assert abs(overall.estimate) < 0.2
    worse = Sums()
    for value in rng.normal(-0.5, 1.0, 400):
        worse.add(value)
    harmed = difference([(worse, strata[0][1])], alpha=0.05, planned=200)
    assert harmed is not None
    assert harmed.worse
    assert difference([(Sums(), Sums())], alpha=0.05, planned=200) is None


def tried(values: dict[str, float]) -> tuple[Control, Monitor, Settings]:
    """A monitor that has followed users with rewards by arm."""
    settings = Settings.of(
        {"canary": {"stages": [0.2, 0.4], "users": 40, "window": "1d"}, "server": {"clock": "events"}}
    )
    control = Control.new("uniform", 0).with_canary("p", "test", 0)
    monitor = Monitor(settings)
    monitor.follow(control)
    from shpi.serve.decide import Arms

    arms = Arms(salt=bytes.fromhex(control.salt), hold_back=0.05, canary=0.2)
    rng = np.random.default_rng(1)
    for n in range(1500):
        arm = arms.of(f"u{n}")
        shown = decision(n, user=f"u{n}")
        fields = {name: getattr(shown, name) for name in Decision.__struct_fields__}
        monitor.observe([Decision(**{**fields, "time": n, "arm": arm})])
        if rng.random() < values[arm]:
            monitor.observe([type(reward(n))(f"e{n}", "reward", "r", 1.0, n + 1, b"")])
    return control, monitor, settings


def test_a_worse_canary_is_rolled_back_and_an_equal_one_goes_on() -> None:
    now = 2 * DAY
    control, monitor, settings = tried({"hold-back": 0.5, "canary": 0.2, "champion": 0.5})
    ruling = judge(control, monitor, settings, Health(), now)
    assert (ruling.move, "less per user" in ruling.why) == ("roll back", True)
    control, monitor, settings = tried({"hold-back": 0.5, "canary": 0.55, "champion": 0.5})
    assert judge(control, monitor, settings, Health(), 10).move == "wait"  # rewards are not known yet
    assert judge(control, monitor, settings, Health(), now).move == "next stage"
    last = control.next_stage("test", now)
    monitor.follow(last)
    assert judge(last, monitor, settings, Health(), now + 1).move == "wait"  # its own users are to come
    assert judge(last, monitor, settings, Health(), 30 * DAY).move == "roll back"  # it took too long


def test_a_canary_that_nothing_speaks_for_makes_room() -> None:
    control, monitor, settings = tried({"hold-back": 0.5, "canary": 0.5, "champion": 0.5})
    last = replace(control, canary=replace(control.canary, stage=1, stage_since=(0, 0)))  # type: ignore[type-var]
    monitor.follow(last)
    assert monitor.canary is not None
    monitor.canary.mature(2 * DAY)
    first, second = Sums(n=200, mean=0.48, squares=50.0), Sums(n=200, mean=0.5, squares=50.0)
    monitor.canary.strata = [(Sums(), Sums()), (first, second)]
    ruling = judge(last, monitor, settings, Health(), 2 * DAY)
    assert (ruling.move, "no evidence for it" in ruling.why) == ("roll back", True)
    first.mean = 0.55
    assert judge(last, monitor, settings, Health(), 2 * DAY).move == "promote"


def test_operational_alarms_roll_back() -> None:
    control, monitor, settings = tried({"hold-back": 0.5, "canary": 0.5, "champion": 0.5})
    for health, word in (
        (Health(decisions=500, failed=50), "failed"),
        (Health(decisions=500, seconds=500.0), "ms on average"),
    ):
        ruling = judge(control, monitor, settings, health, 10)
        assert (ruling.move, word in ruling.why) == ("roll back", True)
    for _ in range(500):
        monitor.weights.add(2.0)
    assert "importance weight" in judge(control, monitor, settings, Health(), 10).why


# ---------------------------------------------------------------------- the shop


def test_the_truth_of_the_shop() -> None:
    def uniform(contexts: list[dict[str, object]]) -> np.ndarray:
        return np.full((len(contexts), 5), 0.2)

    assert Shop(alike=True).value(uniform, users=4000, days=1, seed=0) == pytest.approx(0.4, abs=0.03)
    plain = Shop().value(rule(0.0), users=4000, days=1, seed=0)
    assert plain == pytest.approx(2 * Shop().bestseller, abs=0.04)


def test_a_cycle_killed_in_each_step_goes_on(tmp_path: Path) -> None:
    from tests.serve.wire_client import WireClient

    toml = EVENTS + '[log]\nmetric = "reward in 2d"\n[cycle]\nmin_users = 50\nlearner = "bandit"\n'
    (tmp_path / "serve.toml").write_text(toml)
    traffic = Traffic(Shop(), arrivals=60, seed=0)
    with WireClient(tmp_path) as client:
        for _ in range(5):
            traffic.run_day(client)
    code = (
        "import os, sys; from pathlib import Path; from shpi.serve.loop.cycle import run_cycle;"
        "run_cycle(Path(sys.argv[1]), after=lambda step: os._exit(9) if step == sys.argv[2] else None)"
    )
    from shpi.serve.loop.cycle import run_cycle
    from shpi.serve.loop.state import CycleState

    for step in ("compact", "fit"):
        assert subprocess.run([sys.executable, "-c", code, str(tmp_path), step], check=False).returncode == 9
        state = CycleState.last(tmp_path)
        assert state is not None
        assert state.number == 1
        assert state.done[-1] == step
    done: list[str] = []
    state = run_cycle(tmp_path, after=done.append)
    assert state.number == 1
    assert "compact" not in done
    assert "fit" not in done
    assert state.outcome
    assert (state.place(tmp_path) / "report.html").exists()
    assert run_cycle(tmp_path).number == 2


@pytest.mark.parametrize("step", ["evaluate", "gate", "canary"])
def test_a_cycle_killed_late_puts_one_policy_on_trial(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shpi.serve.loop import cycle
    from shpi.serve.policies import Mix
    from tests.serve.shop_policy import save_shop_policy

    proven = {"decision": "first step", "share": 0.5, "estimator": "WDR", "lift": 0.1, "at_least": 0.01}

    def evaluate(steps: Any) -> dict[str, Any]:
        steps.place.mkdir(parents=True, exist_ok=True)
        facts = {**proven, "by_weights": True, "reasons": []}
        (steps.place / cycle.EVALUATION).write_text(json.dumps(facts))
        return {**proven, "effective_users": 99.0}

    def fit(steps: Any) -> dict[str, Any]:
        save_shop_policy(tmp_path / "policies" / steps.name)
        return {"policy": steps.name, "proven": True}

    def killed(done: str) -> None:
        if done == step:
            raise KeyboardInterrupt

    monkeypatch.setattr(cycle._Steps, "compact", lambda steps: {"champion": "apprentice"})
    monkeypatch.setattr(cycle._Steps, "audit", lambda steps: {})
    monkeypatch.setattr(cycle._Steps, "fit", fit)
    monkeypatch.setattr(cycle._Steps, "evaluate", evaluate)
    (tmp_path / "serve.toml").write_text(EVENTS + '[decide]\nstart = "apprentice"\n')
    Control.new("apprentice").write(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        cycle.run_cycle(tmp_path, after=killed)
    state = cycle.run_cycle(tmp_path)
    assert (state.number, state.changed) == (1, True)
    control = Control.read(tmp_path)
    assert control.canary is not None
    assert [entry.what for entry in control.history] == ["started", "canary"]
    assert Mix.read(tmp_path / "policies" / control.canary.policy) == Mix(share=0.5, over="apprentice")


def test_an_apprentice_that_does_not_explore_is_unfit_for_evaluation(tmp_path: Path) -> None:
    from shpi.serve.loop.cycle import run_cycle
    from tests.serve.wire_client import WireClient

    start = '[decide]\nstart = "apprentice"\nfloor = 0.0\n'
    (tmp_path / "serve.toml").write_text(EVENTS + start + '[cycle]\nmin_users = 50\nlearner = "bandit"\n')
    asked = [
        {"user": f"u{n % 120}", "context": {"x": n % 7}, "time": 1.8e9 + 4000 * n}
        | {"candidates": [ITEMS[n % 3], *(item for item in ITEMS if item != ITEMS[n % 3])]}
        for n in range(360)
    ]
    with WireClient(tmp_path) as client:
        answers = client.batch(rank=asked)["rank"]
        assert {entry["answer"]["propensity"] for entry in answers} == {1.0}
        ids = [entry["answer"]["event_id"] for entry in answers[::2]]
        client.batch(reward=[{"event_id": event, "value": n % 2} for n, event in enumerate(ids)])
        assert "unfit" in client.app.service.alarms["apprentice"]
    state = run_cycle(tmp_path)
    assert not state.changed
    assert "explore" in str(state)


def test_the_window_of_a_canary_is_that_of_the_metric() -> None:
    day = 86_400_000_000
    assert Settings().canary_window == day
    assert Settings.of({"log": {"metric": "reward in 3d"}}).canary_window == 3 * day
    own = {"log": {"metric": "reward in 3d"}, "canary": {"window": "2d"}}
    assert Settings.of(own).canary_window == 2 * day
