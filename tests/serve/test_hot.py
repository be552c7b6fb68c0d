"""The way that the common requests take on a real server: many connections, decided and stored in groups."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from shpi.data.actions import ActionSpace
from shpi.data.schema import ContextSchema
from shpi.policies import save_policy
from shpi.serve.loop.control import Control
from shpi.serve.store import Decision
from shpi.serve.web.server import Running
from tests.serve.bodies import BODIES, CONTEXT, NAMES, with_champion
from tests.serve.policies import policies

CONNECTIONS = 16


def request(body: bytes, path: str = "/v1/rank", *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def good(number: int, **more: object) -> bytes:
    return json.dumps({"user": f"u{number}", "event_id": f"e{number}", "context": CONTEXT, **more}).encode()


def send(server: Running, requests: Sequence[bytes]) -> list[tuple[int, Any]]:
    """Send requests over several connections at once; statuses and answers in their order."""
    host, port = server.url.removeprefix("http://").split(":")
    answers: dict[int, tuple[int, Any]] = {}

    async def connection(first: int) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for number in range(first, len(requests), CONNECTIONS):
            writer.write(requests[number])
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            answers[number] = int(head.split()[1]), json.loads(body)
        writer.close()

    async def work() -> None:
        await asyncio.gather(*(connection(first) for first in range(CONNECTIONS)))

    asyncio.run(asyncio.wait_for(work(), 60))
    return [answers[number] for number in range(len(requests))]


def stored(server: Running) -> dict[str, Decision]:
    assert server.app is not None
    records = server.app.service.store.scan()
    return {record.event_id: record for record in records if isinstance(record, Decision)}


def test_no_body_among_others_is_ever_a_500(tmp_path: Path) -> None:
    with_champion(tmp_path)
    bodies: list[bytes] = []

    @hypothesis_settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(BODIES)
    def collect(body: Any) -> None:
        bodies.append(json.dumps(body).encode())

    collect()
    mixed = [raw for number, body in enumerate(bodies) for raw in (body, good(number))]
    with Running(tmp_path) as server:
        answers = send(server, [request(body) for body in mixed])
        records = stored(server)
    assert {status for status, _ in answers} <= {200, 400, 409, 422}
    assert all(status == 200 for status, _ in answers[1::2])  # those that were good
    for status, answer in answers:
        if status == 200:
            assert records[answer["event_id"]].propensity == answer["propensity"]
    assert {answer["event_id"] for status, answer in answers if status == 200} == records.keys()


def test_a_full_disk_refuses_the_whole_group_and_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_champion(tmp_path)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    wanted = [request(good(number)) for number in range(40)]
    with Running(tmp_path) as server:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            refusals = send(server, wanted)
        assert {status for status, _ in refusals} == {503}
        assert stored(server) == {}
        answers = send(server, wanted)
        assert {status for status, _ in answers} == {200}
        assert send(server, wanted) == answers  # and each id keeps its answer
        assert stored(server).keys() == {f"e{number}" for number in range(40)}


def test_a_shadow_scores_and_does_not_act(tmp_path: Path) -> None:
    with_champion(tmp_path / "plain")
    with_champion(tmp_path / "watched")
    other = policies()["softmax"]
    save_policy(
        other,
        tmp_path / "watched" / "policies" / "p2",
        schema=ContextSchema.numeric(NAMES),
        actions=ActionSpace(ids=tuple(f"i{n}" for n in range(7))),
    )
    (tmp_path / "watched" / "serve.toml").write_text('[decide]\nshadow = "p2"\n')
    control = Control.read(tmp_path / "plain")
    control.write(tmp_path / "watched")  # the same salt: the same arms and draws
    wanted = [request(good(number)) for number in range(40)]
    with Running(tmp_path / "plain") as server:
        plain = send(server, wanted)
    with Running(tmp_path / "watched") as server:
        watched = send(server, wanted)
        records = stored(server)
    for (status, answer), (_, alone) in zip(watched, plain, strict=True):
        assert (status, answer["action"], answer["policy"]) == (200, alone["action"], alone["policy"])
        assert answer["propensity"] == pytest.approx(alone["propensity"], abs=1e-12)
    x = np.array([[np.float32(CONTEXT[name]) for name in NAMES]], dtype=np.float64)
    probs = 0.95 * other.action_probs(x)[0] + 0.05 / 7
    for record in records.values():
        assert record.shadow is not None
        assert record.shadow[0] == "p2"
        assert record.shadow[1] == pytest.approx(probs[record.place], abs=1e-12)


def test_tokens_and_rates_hold_for_headers_that_came_before(tmp_path: Path) -> None:
    with_champion(tmp_path)
    toml = '[server]\nrate = 40\n[tokens]\ndecide = ["d"]\nreward = ["r"]\nadmin = ["a"]\n'
    (tmp_path / "serve.toml").write_text(toml)
    with Running(tmp_path) as server:
        for token, wanted in (("d", 200), ("r", 401), ("d", 200), ("r", 401)):
            requests = [request(good(7), "/v1/rank", f"Authorization: Bearer {token}")] * 3
            assert [status for status, _ in send(server, requests)] == [wanted] * 3
        many = [request(good(n), "/v1/rank", "Authorization: Bearer d") for n in range(150)]
        assert {status for status, _ in send(server, many)} == {200, 429}


def test_the_same_ids_at_the_same_time_get_one_answer(tmp_path: Path) -> None:
    with_champion(tmp_path)
    requests = [request(good(number // 4)) for number in range(64)]
    others = [request(good(number, session="another")) for number in range(16)]
    with Running(tmp_path) as server:
        answers = send(server, requests)
        conflicts = send(server, others)
        records = stored(server)
    for number in range(0, 64, 4):
        assert answers[number][0] == 200
        assert answers[number : number + 4] == [answers[number]] * 4
    assert [status for status, _ in conflicts] == [409] * 16
    assert len(records) == 16
