"""The requests that come thousands of times a second, without a coroutine: decide, hand to the store, go on.

The store calls back when a group is on the disk, and only then does the answer leave. Whatever is not plain
(an id that was seen before, a store that has no such way) takes the way of `shpi.serve.web.routes`, with the
same answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

from shpi.serve.service import Asked, Service
from shpi.serve.store import Activation, Decision, FileStore
from shpi.serve.store.base import StoreUnavailableError
from shpi.serve.web import requests
from shpi.serve.web.metrics import Metrics
from shpi.serve.web.replies import refused
from shpi.serve.web.routes import Answer, Routes, answers_of

Send = Callable[[int, bytes], None]  # a status and a body
_NEW = b'{"event_id":"%b","stored":true,"duplicate":false,"known":%b}'
_ACTIVE = b'{"event_id":"%b","activated":true,"duplicate":false}'


class Hot:
    """Rank, reward and activate on a `FileStore`. Errors are raised, or sent as an answer."""

    def __init__(self, service: Service, routes: Routes, metrics: Metrics) -> None:
        assert isinstance(service.store, FileStore)
        self.service, self.store, self.routes, self.metrics = service, service.store, routes, metrics
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: list[tuple[Asked, Send, float]] = []  # what waits for the next flush
        self.store.gather = self._decide

    def rank(self, body: bytes, send: Send) -> None:
        """``POST /v1/rank``: what arrives during a flush is decided together after it."""
        began, service = perf_counter(), self.service
        request = requests.RANK.decode(body)
        event_id = request.event_id
        if event_id is None:
            event_id = service.new_id()
        elif self.store.has(event_id):
            self.later(self.routes.rank(body), send)
            return
        now = service.now(None if request.time is None else requests.moment(request.time, "time"))
        self._asked.append((Asked(request, body, event_id, now), send, began))
        self.store.call_flush()

    def _decide(self) -> None:
        if not self._asked:
            return
        waiting, self._asked = self._asked, []
        decisions = self.service.decide_each([asked for asked, _, _ in waiting])
        made = [decision for decision in decisions if isinstance(decision, Decision)]
        answers = iter(answers_of(made, self.routes.ranking) if made else ())
        for (asked, send, began), decision in zip(waiting, decisions, strict=True):
            try:
                if isinstance(decision, Exception):
                    raise decision
                self._store(decision, next(answers), asked.body, send, began)
            except Exception as error:
                send(*refused(error, "/v1/rank")[:2])

    def _store(self, decision: Decision, answer: bytes, body: bytes, send: Send, began: float) -> None:
        metrics = self.metrics

        def stored(error: StoreUnavailableError | None) -> None:
            if error is not None:
                send(*refused(error, "")[:2])
                return
            metrics.decisions[decision.arm, decision.policy] += 1
            metrics.took(perf_counter() - began)
            send(200, answer)

        if not self.store.submit(decision, stored):  # the same id twice in one turn
            self.later(self.routes.rank(body), send)

    def reward(self, event_id: str, body: bytes, send: Send) -> None:
        """``POST /v1/events/{id}/reward``."""
        reward = self.service.rewarded(event_id, requests.REWARD.decode(body), body)

        def stored(error: StoreUnavailableError | None) -> None:
            if error is not None:
                send(*refused(error, "")[:2])
                return
            known = self.store.knows(event_id)
            self.metrics.rewards[known] += 1
            send(200, _NEW % (event_id.encode(), b"true" if known else b"false"))

        if not self.store.submit(reward, stored):
            self.later(self.routes.reward(event_id, body), send)

    def activate(self, event_id: str, send: Send) -> None:
        """``POST /v1/events/{id}/activate``."""

        def stored(error: StoreUnavailableError | None) -> None:
            if error is not None:
                send(*refused(error, "")[:2])
            else:
                send(200, _ACTIVE % event_id.encode())

        activation = Activation(event_id, self.service.now())
        if not (self.store.knows(event_id) and self.store.submit(activation, stored)):
            self.later(self.routes.activate(event_id), send)

    def later(self, work: Awaitable[Answer], send: Send) -> None:
        """Send what a coroutine answers."""

        async def whole() -> None:
            try:
                answer = await work
            except Exception as error:
                answer = refused(error, "")[:2]
            send(*answer)

        task = asyncio.ensure_future(whole())
        self._tasks.add(task)  # the loop itself keeps no reference
        task.add_done_callback(self._tasks.discard)
