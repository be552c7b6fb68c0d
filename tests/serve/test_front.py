from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shpi.serve.web import front
from shpi.serve.web.heads import Heads, target_of
from shpi.serve.web.problems import Problem
from shpi.serve.web.server import Running

TOML = "[server]\nbody_bytes = 2000\ntimeout = 1.0\n[rewards]\nwait = '1h'\n"
BODY = b'{"user":"u","candidates":["tea","milk"]}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("front")
    (folder / "serve.toml").write_text(TOML)
    with Running(folder) as running:
        yield running


def post(path: str, body: bytes = BODY, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Wire:
    """A connection on which answers are read one by one."""

    def __init__(self, server: Running) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, content: bytes) -> None:
        self.socket.sendall(content)

    def answer(self, head: bool = False) -> tuple[int, dict[str, str], Any]:
        line = self.file.readline()
        assert line.startswith(b"HTTP/1.1 "), line
        headers: dict[str, str] = {}
        while (field := self.file.readline().strip()) != b"":
            name, _, value = field.decode().partition(": ")
            headers[name] = value
        body = b"" if head else self.file.read(int(headers.get("content-length", 0)))
        parsed = json.loads(body) if "json" in headers.get("content-type", "") and body else body
        return int(line.split()[1]), headers, parsed

    def closed(self) -> bool:
        return self.file.read(1) == b""


def ask(server: Running, content: bytes) -> tuple[int, dict[str, str], Any]:
    with Wire(server) as wire:
        wire.send(content)
        return wire.answer()


def test_pipelined_requests_are_answered_in_order(server: Running) -> None:
    with Wire(server) as wire:
        bodies = [b'{"event_id":"p%d","user":"u","candidates":["a","b"]}' % n for n in range(30)]
        mixed = b"".join(post("/v1/rank", body) + b"GET /healthz HTTP/1.1\r\n\r\n" for body in bodies)
        wire.send(mixed)
        for number in range(30):
            status, _, answer = wire.answer()
            assert (status, answer["event_id"]) == (200, f"p{number}")
            assert wire.answer()[2] == {"status": "alive"}


def test_a_request_in_single_bytes_is_one_request(server: Running) -> None:
    with Wire(server) as wire:
        for byte in post("/v1/rank"):
            wire.send(bytes([byte]))
        assert wire.answer()[0] == 200


def test_hot_and_plain_answers_agree(server: Running) -> None:
    body = b'{"event_id":"same","user":"u","candidates":["a","b","c"]}'
    first, again = ask(server, post("/v1/rank", body)), ask(server, post("/v1/rank", body))
    assert first[2] == again[2]
    assert ask(server, post("/v1/rank", body.replace(b'"u"', b'"v"')))[0] == 409
    stored, repeated = (ask(server, post("/v1/events/same/reward", b'{"value":1}'))[2] for _ in range(2))
    assert stored == {"event_id": "same", "stored": True, "duplicate": False, "known": True}
    assert repeated == {**stored, "duplicate": True}
    active, later = (ask(server, post("/v1/events/same/activate", b""))[2] for _ in range(2))
    assert active == {"event_id": "same", "activated": True, "duplicate": False}
    assert later == {**active, "duplicate": True}
    assert ask(server, post("/v1/events/nobody/activate", b""))[0] == 404
    assert ask(server, post("/v1/events/sa%6De/reward", b'{"value":2}'))[2]["known"] is True
    assert ask(server, post("/v1/rank", b'{"user":7.5}'))[0] == 422
    assert ask(server, post("/v1/rank", b'{"user"'))[0] == 400
    batch = ask(server, post("/v1/batch", b'{"rank":[' + body + b"]}"))
    assert batch[2]["rank"][0]["answer"] == first[2]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (post("/v1/rank", BODY, "Transfer-Encoding: chunked"), 411),
        (post("/v1/rank", BODY, "Content-Length: 3"), 400),
        (post("/v1/rank", BODY, "Bad Name: 3"), 400),
        (post("/v1/rank", BODY, " folded"), 400),
        (post("/v1/rank", BODY, "X: a\x00b"), 400),
        (b"POST /v1/rank HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /v1/rank HTTP/1.1\r\nContent-Length: 5000\r\n\r\n", 413),
        (b"POST /v1/rank HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (b"POST http://other/v1/rank HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"\x16\x03\x01 hello\r\n\r\n", 400),
    ],
)
def test_what_is_no_plain_request_is_refused_and_the_connection_closed(
    server: Running, content: bytes, status: int
) -> None:
    with Wire(server) as wire:
        wire.send(content + post("/v1/rank"))  # what follows is not taken for a request
        code, headers, answer = wire.answer()
        assert (code, headers["connection"]) == (status, "close")
        assert answer["error"]["expected"]
        assert wire.closed()


def test_slow_requests_and_silence_end(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "SILENT", 1.0)
    with Wire(server) as slow, Wire(server) as silent, Wire(server) as busy:
        slow.send(post("/v1/rank")[:-5])
        began = time.monotonic()
        assert slow.answer()[0] == 408
        assert silent.closed()
        assert time.monotonic() - began < 15
        busy.send(b"")
    assert ask(server, post("/v1/rank"))[0] == 200


def test_closing_old_and_waiting_callers(server: Running) -> None:
    for closing in (post("/v1/rank", BODY, "Connection: close"), b"GET /healthz HTTP/1.0\r\n\r\n"):
        with Wire(server) as wire:
            wire.send(closing)
            assert wire.answer()[0] == 200
            assert wire.closed()
    with Wire(server) as wire:
        content = post("/v1/rank", BODY, "Expect: 100-continue")
        wire.send(content[: -len(BODY)])
        assert wire.file.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert wire.file.readline() == b"\r\n"
        wire.send(BODY)
        assert wire.answer()[0] == 200
        wire.send(b"HEAD /healthz HTTP/1.1\r\n\r\n")
        status, headers, _ = wire.answer(head=True)
        assert (status, headers["content-length"]) == (200, "18")
        wire.send(post("/v1/rank"))
        assert wire.answer()[0] == 200


def test_metrics_count_hot_requests(server: Running) -> None:
    ask(server, post("/v1/rank"))
    text = ask(server, b"GET /metrics HTTP/1.1\r\n\r\n")[2].decode()
    assert 'shpi_requests_total{route="/v1/rank",status="200"}' in text
    assert "shpi_request_seconds_count" in text


def _status(work: Callable[[], object]) -> int:
    try:
        work()
    except Problem as problem:
        return problem.status
    return 200


@given(st.binary(max_size=200))
def test_no_bytes_are_anything_but_a_head_or_a_problem(content: bytes) -> None:
    assert _status(lambda: Heads().fields(content)) in (200, 400, 411)
    assert _status(lambda: target_of(content)) in (200, 400)
