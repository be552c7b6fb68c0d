"""Requests over many connections from one thread, as fast as they are answered."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import uvloop

Request = tuple[str, bytes]  # path and body


@dataclass
class Answers:
    """What came back."""

    statuses: dict[int, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    elapsed: float = 0.0

    def quantile(self, share: float) -> float:
        """Of the seconds until an answer."""
        ordered = sorted(self.seconds)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("nan")


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(
        self, requests: Iterator[Request], answers: Answers, done: asyncio.Event, keep: bool
    ) -> None:
        self.requests, self.answers, self.done, self.keep = requests, answers, done, keep
        self.rest, self.sent = b"", 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._next()

    def _next(self) -> None:
        request = next(self.requests, None)
        if request is None:
            self.transport.close()
            return
        path, body = request
        size = f"content-type: application/json\r\ncontent-length: {len(body)}"
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\n{size}\r\n\r\n".encode()
        self.sent = time.perf_counter()
        self.transport.write(head + body)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.rest += data
        end = self.rest.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.rest[:end].lower()
        place = head.find(b"content-length: ") + 16
        length = int(head[place:].split(b"\r\n", 1)[0])
        if len(self.rest) < end + 4 + length:
            return
        status, body = int(head[9:12]), self.rest[end + 4 : end + 4 + length]
        self.rest = b""
        answers = self.answers
        answers.seconds.append(time.perf_counter() - self.sent)
        answers.statuses[status] = answers.statuses.get(status, 0) + 1
        if self.keep and status == 200:
            answers.bodies.append(body)
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        self.done.set()


def send(port: int, requests: Iterator[Request], *, connections: int = 32, keep: bool = False) -> Answers:
    """Send requests until there are none left, or until the server is gone."""
    answers = Answers()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        ends = [asyncio.Event() for _ in range(connections)]
        make: Callable[[asyncio.Event], _Connection] = lambda end: _Connection(requests, answers, end, keep)  # noqa: E731
        began = time.perf_counter()
        for end in ends:
            try:
                await loop.create_connection(lambda end=end: make(end), "127.0.0.1", port)  # type: ignore[misc]
            except OSError:
                end.set()
        await asyncio.gather(*(end.wait() for end in ends))
        answers.elapsed = time.perf_counter() - began

    uvloop.run(work())
    return answers


def ranks(
    names: list[str], count: int, *, users: int = 10_000, event: str = "", seed: int = 0
) -> Iterator[Request]:
    """Requests for decisions on 47 numbers; with their own ids where a name is given."""
    import random

    rng = random.Random(seed)
    contexts = [json.dumps({name: round(rng.gauss(0, 1), 4) for name in names}) for _ in range(200)]
    for n in range(count):
        own = f'"event_id":"{event}{n}",' if event else ""
        body = f'{{{own}"user":"u{rng.randrange(users)}","context":{contexts[n % 200]}}}'
        yield "/v1/rank", body.encode()


def rewards(event_ids: list[str]) -> Iterator[Request]:
    for n, event_id in enumerate(event_ids):
        yield f"/v1/events/{event_id}/reward", f'{{"value":1.0,"reward_id":"r{n}"}}'.encode()
