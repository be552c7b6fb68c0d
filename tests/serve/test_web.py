from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shpi.data.actions import ActionSpace
from shpi.data.schema import ContextSchema
from shpi.errors import ConfigError
from shpi.policies import save_policy
from shpi.serve import Settings
from shpi.serve.loop.control import Control
from shpi.serve.policies import Mix
from tests.serve.bodies import BODIES, CONTEXT, ITEMS, NAMES, with_champion
from tests.serve.http import Wire, on_wire
from tests.serve.policies import policies


def test_rank_reward_and_what_is_known(tmp_path: Path) -> None:
    async def work(wire: Wire) -> None:
        answer = await wire.rank(context={"hour": 3}, candidates=ITEMS)
        assert answer["action"] in ITEMS
        assert answer["propensity"] == pytest.approx(1 / 3)
        assert {item["id"] for item in answer["ranking"]} == set(ITEMS)
        event = f"/v1/events/{answer['event_id']}"
        status, rewarded = await wire.call("POST", f"{event}/reward", {"value": 2.5, "name": "spend"})
        assert (status, rewarded["known"], rewarded["duplicate"]) == (200, True, False)
        status, known = await wire.call("GET", event)
        assert known["context"] == {"hour": 3}
        assert known["rewards"][0]["value"] == 2.5
        assert "uniform" in known["why"]

    on_wire(tmp_path, work)


def test_the_same_id_gets_the_stored_answer_and_another_body_409(tmp_path: Path) -> None:
    body = {"user": "u", "event_id": "e1", "candidates": ITEMS}

    async def first(wire: Wire) -> bytes:
        original = await wire.raw("POST", "/v1/rank", json.dumps(body).encode())
        repeated = await wire.raw("POST", "/v1/rank", json.dumps(body).encode())
        assert original[1] == repeated[1]
        status, error = await wire.call("POST", "/v1/rank", {**body, "user": "v"})
        assert status == 409
        assert "event_id" in error["error"]["message"]
        return original[1]

    async def later(wire: Wire) -> bytes:
        return (await wire.raw("POST", "/v1/rank", json.dumps(body).encode()))[1]

    assert on_wire(tmp_path, first) == on_wire(tmp_path, later)  # after a restart, too


def test_rewards_are_counted_once(tmp_path: Path) -> None:
    async def work(wire: Wire) -> None:
        event = f"/v1/events/{(await wire.rank(candidates=ITEMS))['event_id']}/reward"
        sent = [{"value": 1}, {"value": 1}, {"value": 1, "reward_id": "r"}, {"value": 1, "reward_id": "r"}]
        answers = [await wire.call("POST", event, body) for body in sent]
        assert [answer["duplicate"] for _, answer in answers] == [False, True, False, True]
        assert (await wire.call("POST", event, {"value": 2, "reward_id": "r"}))[0] == 409
        status, orphan = await wire.call("POST", "/v1/events/unknown/reward", {"value": 1})
        assert (status, orphan["known"]) == (200, False)
        metrics = (await wire.raw("GET", "/metrics"))[1].decode()
        assert "shpi_orphan_rewards 1" in metrics

    on_wire(tmp_path, work)


def test_deferred_decisions_are_activated(tmp_path: Path) -> None:
    async def work(wire: Wire) -> None:
        answer = await wire.rank(candidates=ITEMS, defer=True)
        event = f"/v1/events/{answer['event_id']}"
        assert (await wire.call("GET", event))[1]["activated"] is False
        first, second = [await wire.call("POST", f"{event}/activate", {}) for _ in range(2)]
        assert (first[1]["duplicate"], second[1]["duplicate"]) == (False, True)
        assert (await wire.call("GET", event))[1]["activated"] is True
        assert (await wire.call("POST", "/v1/events/nobody/activate"))[0] == 404

    on_wire(tmp_path, work)


def test_batches_answer_every_entry_for_itself(tmp_path: Path) -> None:
    async def work(wire: Wire) -> None:
        ranks = [{"user": "a", "event_id": "x", "candidates": ITEMS}, {"user": 1.5}, {"user": "b"}]
        body = {"rank": ranks, "reward": [{"event_id": "x", "value": 1}, {"event_id": "x"}]}
        status, answer = await wire.call("POST", "/v1/batch", {**body, "activate": [{"event_id": "no"}]})
        assert status == 200
        assert [entry["status"] for entry in answer["rank"]] == [200, 422, 422]
        assert [entry["status"] for entry in answer["reward"]] == [200, 422]
        assert [entry["status"] for entry in answer["activate"]] == [404]
        assert (await wire.call("POST", "/v1/batch", {"rank": [{}] * 2000}))[0] == 413

    on_wire(tmp_path, work)


def test_a_learned_policy_serves_with_its_floor(tmp_path: Path) -> None:
    with_champion(tmp_path)
    own = policies()["tilted"].action_probs(np.array([list(CONTEXT.values())]))[0]

    async def work(wire: Wire) -> None:
        for number in range(40):
            answer = await wire.rank(user=f"u{number}", context=CONTEXT)
            if answer["arm"] == "champion":
                served = {item["id"]: item["propensity"] for item in answer["ranking"]}
                wanted = {f"i{n}": 0.95 * p + 0.05 / 7 for n, p in enumerate(own.tolist())}
                assert served == pytest.approx(wanted, abs=1e-15)
            else:
                assert answer["policy"] == "uniform"  # the hold-back stays with the start
        some = await wire.rank(user="z", context=CONTEXT, exclude=["i0", "i3"])
        assert {item["id"] for item in some["ranking"]} == {"i1", "i2", "i4", "i5", "i6"}
        known = (await wire.call("GET", f"/v1/events/{some['event_id']}"))[1]
        assert known["arm"] == "champion"
        assert set(known["explanation"]["scores"]) == {item["id"] for item in some["ranking"]}
        status, error = await wire.call("POST", "/v1/rank", {"user": "z", "context": {"a": 1}})
        assert status == 422
        assert "'b'" in error["error"]["message"]

    on_wire(tmp_path, work)


def test_a_damaged_policy_leaves_the_champion_in_place(tmp_path: Path) -> None:
    with_champion(tmp_path)

    async def work(wire: Wire) -> None:
        (tmp_path / "policies" / "p2").mkdir()
        (tmp_path / "policies" / "p2" / "manifest.json").write_text("{}")
        control = Control.read(tmp_path).with_canary("p2", "test", 3)
        control.write(tmp_path)
        assert wire.service.follow()
        assert wire.service.canary_share == 0
        assert "p2" in wire.service.alarms["policy"]
        control.promoted("test", 4).write(tmp_path)
        assert not wire.service.follow()
        assert wire.service.control.champion == "p1"
        assert (await wire.rank(context=CONTEXT))["policy"] in ("p1", "uniform")

    on_wire(tmp_path, work)


def test_a_canary_that_fails_is_covered_by_the_champion(tmp_path: Path) -> None:
    with_champion(tmp_path)
    save_policy(
        policies()["softmax"],
        tmp_path / "policies" / "p2",
        schema=ContextSchema.numeric(["new", *NAMES[1:]]),  # a feature that callers do not send
        actions=ActionSpace(ids=tuple(f"i{n}" for n in range(7))),
    )
    Control.read(tmp_path).with_canary("p2", "test", 3).write(tmp_path)

    async def work(wire: Wire) -> None:
        answers = [await wire.rank(user=f"u{n}", context=CONTEXT) for n in range(400)]
        on_trial = [answer for answer in answers if answer["arm"] == "canary"]
        assert on_trial
        assert {answer["policy"] for answer in on_trial} == {"p1"}
        health = wire.service.health()
        assert health.failed == health.decisions == len(on_trial)

    on_wire(tmp_path, work, "[canary]\nstages = [0.2, 0.5]\n")


def test_a_first_step_serves_the_mixture_that_was_proven(tmp_path: Path) -> None:
    with_champion(tmp_path)
    path = tmp_path / "policies" / "p1"
    Mix(share=0.25, over="apprentice").write(path)
    own = policies()["tilted"].action_probs(np.array([list(CONTEXT.values())]))[0]
    items = [f"i{n}" for n in (3, 0, 1, 2, 4, 5, 6)]
    rule = {item: 0.05 / 7 + 0.95 * (item == "i3") for item in items}

    async def work(wire: Wire) -> None:
        arms = set()
        for number in range(30):
            answer = await wire.rank(user=f"u{number}", context=CONTEXT, candidates=items)
            arms.add(answer["arm"])
            if answer["arm"] == "champion":
                served = {item["id"]: item["propensity"] for item in answer["ranking"]}
                mixture = {
                    f"i{n}": 0.25 * (0.95 * p + 0.05 / 7) + 0.75 * rule[f"i{n}"] for n, p in enumerate(own)
                }
                assert served == pytest.approx(mixture, abs=1e-12)
        assert "champion" in arms
        status, error = await wire.call("POST", "/v1/rank", {"user": "u1", "context": CONTEXT})
        assert status == 422  # the rule's first choice is the caller's to say
        assert "candidates" in error["error"]["message"]

    on_wire(tmp_path, work, "[decide]\nhold_back = 0.0\n")
    (tmp_path / "policies" / "p1.mix.json").write_text('{"share": 2, "over": "apprentice"}')
    with pytest.raises(ConfigError, match="share"):
        on_wire(tmp_path, work)


def test_the_ranking_is_as_long_as_asked(tmp_path: Path) -> None:
    items = [f"i{n}" for n in range(30)]

    async def work(wire: Wire) -> None:
        answer = await wire.rank(candidates=items)
        assert [item["id"] for item in answer["ranking"]] == items[
            : wire.service.settings.server.ranking or 30
        ]
        known = (await wire.call("GET", f"/v1/events/{answer['event_id']}"))[1]
        assert [item["id"] for item in known["ranking"]] == items

    on_wire(tmp_path / "some", work)
    on_wire(tmp_path / "all", work, "[server]\nranking = 0\n")


def test_a_full_disk_is_503_and_never_an_unlogged_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"event_id": "e1", "candidates": ITEMS}

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def work(wire: Wire) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            status, answer, headers = await wire.raw(
                "POST", "/v1/rank", json.dumps({"user": "u", **body}).encode()
            )
            assert status == 503
            assert headers["retry-after"] == "1"
            assert b"No space" in answer
            assert (await wire.call("GET", "/readyz"))[0] == 503
            assert (await wire.call("GET", "/healthz"))[0] == 200
        assert (await wire.rank(**body))["event_id"] == "e1"
        assert (await wire.call("GET", "/readyz"))[0] == 200

    on_wire(tmp_path, work)


# ---------------------------------------------------------------------- safety


TOKENS = '[tokens]\ndecide = ["d"]\nreward = ["r"]\nadmin = ["env:SHPI_TEST_ADMIN"]\n'


def test_tokens_are_separate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHPI_TEST_ADMIN", "secret")
    body = {"user": "u", "candidates": ITEMS}

    async def work(wire: Wire) -> None:
        async def status(method: str, path: str, token: str, content: Any = None) -> int:
            return (await wire.call(method, path, content, authorization=f"Bearer {token}"))[0]

        assert await status("POST", "/v1/rank", "d", body) == 200
        assert await status("POST", "/v1/rank", "r", body) == 401
        assert (await wire.call("POST", "/v1/rank", body))[0] == 401
        assert await status("POST", "/v1/events/e/reward", "r", {"value": 1}) == 200
        assert await status("POST", "/v1/events/e/reward", "d", {"value": 1}) == 401
        assert await status("POST", "/v1/rank", "secret", body) == 200
        assert await status("GET", "/v1/events/e", "d") == 401
        assert await status("GET", "/v1/events/e", "secret") == 404
        assert (await wire.call("GET", "/healthz"))[0] == 200

    on_wire(tmp_path, work, TOKENS)


def test_limits(tmp_path: Path) -> None:
    async def work(wire: Wire) -> None:
        assert (await wire.call("POST", "/v1/rank", {"user": "u" * 999, "candidates": ITEMS}))[0] == 413
        status, error = await wire.call("POST", "/v1/rank", {"user": "u", "candidates": ["a", "b", "c", "d"]})
        assert (status, "at most 3" in error["error"]["message"]) == (422, True)
        codes = [
            (await wire.call("POST", "/v1/rank", {"user": "u", "candidates": ITEMS}))[0] for _ in range(60)
        ]
        assert codes.count(429) > 10
        assert codes.count(200) > 10

    on_wire(tmp_path, work, "[server]\nbody_bytes = 500\ncandidates = 3\nrate = 10\n")


def test_no_user_data_in_metrics_or_errors(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(wire: Wire) -> None:
        await wire.rank(user="alice@example.com", context={"name": "Alice"}, candidates=ITEMS)
        texts = [(await wire.raw("GET", "/metrics"))[1].decode()]
        wrong = {"user": "alice@example.com", "context": {"x": "Alice"}, "candidates": [], "time": "Alice"}
        texts.append((await wire.raw("POST", "/v1/rank", json.dumps(wrong).encode()))[1].decode())
        assert not any("lice" in text for text in texts)

    on_wire(tmp_path, work)
    assert "lice" not in caplog.text


def test_settings_are_strict_and_documented(tmp_path: Path) -> None:
    text = Settings().to_toml()
    (tmp_path / "serve.toml").write_text(text)
    assert Settings.read(tmp_path) == Settings()
    (tmp_path / "serve.toml").write_text(text.replace("# floor = 0.05", "floor = 0.1"))
    assert Settings.read(tmp_path).decide.floor == 0.1
    wrong: list[dict[str, Any]] = [
        {"decide": {"flor": 0.1}},
        {"decide": {"floor": 2}},
        {"decide": {"floor": "much"}},
        {"server": {"host": "0.0.0.0"}},
        {"server": {"port": True}},
        {"server": 5},
        {"rewards": {"wait": "soon"}},
        {"canary": {"stages": [0.5, 0.1]}},
        {"store": {"kind": "postgres"}},
        {"nothing": {}},
    ]
    for content in wrong:
        with pytest.raises(ConfigError):
            Settings.of(content)


def test_every_page_answers(tmp_path: Path) -> None:
    async def work(wire: Wire) -> None:
        status, described = await wire.call("GET", "/openapi.json")
        assert status == 200
        assert {"/v1/rank", "/v1/batch", "/v1/events/{id}/reward"} <= described["paths"].keys()
        assert described["components"]["schemas"]["Rank"]["required"] == ["user"]
        for path in ("/nowhere", "/v1/events/", "/v1/events/a/b/c", "/v1/events/a b"):
            assert (await wire.call("GET", path))[0] in (404, 405, 422)
        assert (await wire.call("PUT", "/v1/rank"))[0] == 405
        assert (await wire.call("POST", "/healthz"))[0] == 405

    on_wire(tmp_path, work)


# ---------------------------------------------------------------------- anything at all


PATHS = st.sampled_from(
    [
        "/v1/rank",
        "/v1/batch",
        "/v1/events/a/reward",
        "/v1/events/a/activate",
        "/v1/events/a",
        "/v1/events/%00",
    ]
)


def test_no_body_is_ever_a_500(tmp_path: Path) -> None:
    with_champion(tmp_path)

    async def work(wire: Wire) -> None:
        sent: list[tuple[str, bytes]] = []

        @hypothesis_settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(PATHS, BODIES, st.integers(0, 60))
        def collect(path: str, body: Any, cut: int) -> None:
            text = json.dumps({"rank": [body], "reward": [body]} if path == "/v1/batch" else body).encode()
            sent.append((path, text if cut > 5 else text[:cut]))

        collect()
        codes = set()
        for path, body in [*sent, ("/v1/rank", b"[" * 50_000), ("/v1/rank", b'{"user":"\xff"}')]:
            status, answer, _ = await wire.raw("POST", path, body)
            assert status < 500, (path, body, answer)
            assert status == 200 or json.loads(answer)["error"]["expected"], (path, body)
            codes.add(status)
        assert {200, 400, 422} <= codes

    on_wire(tmp_path, work)


def test_the_page_of_the_settings_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "serve" / "settings.md"
    assert Settings().to_toml() in page.read_text()
