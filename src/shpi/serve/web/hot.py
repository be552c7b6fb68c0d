"""The frequent requests, without coroutines: decide, hand the record to the store, and go on.

The store calls back when a group is on the disk, and only then is the answer sent. Special cases (an id that
was seen before, a store without callbacks) go through `shpi.serve.web.routes`, with the same answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import compress
from operator import not_
from time import perf_counter

from shpi.serve.service import Asked, Service
from shpi.serve.store import Activation, Decision, FileStore
from shpi.serve.store.base import StoreUnavailableError
from shpi.serve.web import requests
from shpi.serve.web.answers import answers_of
from shpi.serve.web.metrics import Metrics
from shpi.serve.web.replies import refused
from shpi.serve.web.routes import Answer, Routes

Send = Callable[[int, bytes], None]  # sends a status and a body
Caller = tuple[Send, float]  # how to answer, and when the request came
_NEW = b'{"event_id":"%b","stored":true,"duplicate":false,"known":%b}'
_ACTIVE = b'{"event_id":"%b","activated":true,"duplicate":false}'


class Hot:
    """Rank, reward and activate on a `FileStore`. Errors are raised, or sent as an answer."""

    def __init__(self, service: Service, routes: Routes, metrics: Metrics) -> None:
        assert isinstance(service.store, FileStore)
        self.service, self.store, self.routes, self.metrics = service, service.store, routes, metrics
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: list[Asked] = []  # requests that wait for the next flush
        self._callers: list[Caller] = []  # the caller of each request
        self.store.gather = self._decide

    def rank(self, body: bytes, send: Send) -> None:
        """``POST /v1/rank``: requests that arrive during a flush are decided together after it."""
        began, service = perf_counter(), self.service
        request = requests.RANK.decode(body)
        event_id = request.event_id
        if event_id is None:
            event_id = service.new_id()
        elif self.store.has(event_id):
            self.later(self.routes.rank(body), send)
            return
        now = service.now(None if request.time is None else requests.moment(request.time, "time"))
        self._asked.append(Asked(request, body, event_id, now))
        self._callers.append((send, began))
        self.store.call_flush()

    def _decide(self) -> None:
        if not self._asked:
            return
        asked, callers = self._asked, self._callers
        self._asked, self._callers = [], []
        made: list[Decision] = []
        waiting: list[Caller] = []
        bodies: list[bytes] = []
        for request, caller, decision in zip(asked, callers, self.service.decide_each(asked), strict=True):
            if isinstance(decision, Exception):
                caller[0](*refused(decision, "/v1/rank")[:2])
            else:
                made.append(decision)
                waiting.append(caller)
                bodies.append(request.body)
        if not made:
            return
        try:
            answers = answers_of(made, self.routes.ranking)
            new = self.store.put_each(made)
        except Exception as error:
            for send, _ in waiting:
                send(*refused(error, "/v1/rank")[:2])
            return
        if not all(new):  # the same id twice in one group
            for body, caller in compress(zip(bodies, waiting, strict=True), map(not_, new)):
                self.later(self.routes.rank(body), caller[0])
            made, waiting = list(compress(made, new)), list(compress(waiting, new))
            answers = list(compress(answers, new))
        if made:
            self._tell(made, waiting, answers)

    def _tell(self, decisions: list[Decision], callers: list[Caller], answers: list[bytes]) -> None:
        """Send the answers of decisions as soon as they are durable."""

        def stored(error: StoreUnavailableError | None) -> None:
            if error is not None:
                for send, _ in callers:
                    send(*refused(error, "/v1/rank")[:2])
                return
            metrics, now = self.metrics, perf_counter()
            metrics.decisions.update([(decision.arm, decision.policy) for decision in decisions])
            metrics.took_each([now - began for _, began in callers])
            for (send, _), answer in zip(callers, answers, strict=True):
                send(200, answer)

        self.store.on_durable(stored)

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
        """Run a coroutine as a task, and send its answer."""

        async def whole() -> None:
            try:
                answer = await work
            except Exception as error:
                answer = refused(error, "")[:2]
            send(*answer)

        task = asyncio.ensure_future(whole())
        self._tasks.add(task)  # the event loop keeps only weak references to tasks
        task.add_done_callback(self._tasks.discard)
