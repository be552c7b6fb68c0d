"""The ASGI application of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from shpi.serve.service import Service
from shpi.serve.web import requests
from shpi.serve.web.limits import Rate, Tokens
from shpi.serve.web.metrics import Metrics
from shpi.serve.web.openapi import description
from shpi.serve.web.problems import Problem
from shpi.serve.web.replies import HTML, TEXT, Reply, headers_of, refused
from shpi.serve.web.routes import Answer, Routes

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Page = Callable[[], str]
Body = Callable[[], Awaitable[bytes]]

_ENCODE = msgspec.json.Encoder().encode


class App:
    """Answers requests. One instance serves one folder."""

    def __init__(self, service: Service, *, page: Page | None = None, report: Page | None = None) -> None:
        """Make the application.

        Args:
            service: what decides and stores.
            page: builds the HTML page.
            report: builds the report of the last cycle.
        """
        self.service, self.metrics = service, Metrics()
        self.routes = Routes(service, self.metrics)
        self.tokens, self.rate = Tokens(service.settings), Rate(service.settings.server.rate)
        self.background: list[Callable[[], Awaitable[None]]] = []
        self._page, self._report = page, report
        self._tasks: list[asyncio.Task[None]] = []
        self._most = service.settings.server.body_bytes
        self.ready = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI request, or handle startup and shutdown."""
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:  # websockets: closed before they open
            await send({"type": "websocket.close", "code": 1003})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def start(self) -> None:
        """Start the background tasks."""
        self._tasks = [asyncio.ensure_future(work()) for work in self.background]
        self.ready = True

    async def stop(self) -> None:
        """Stop the background tasks, and close the store."""
        self.ready = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.service.store.close()

    # ------------------------------------------------------------------ requests

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, headers = scope["method"], scope["headers"]
        sent = next((value for name, value in headers if name == b"authorization"), b"")
        address = (scope.get("client") or ("", 0))[0]
        reply = await self.respond(method, scope["path"], sent, address, lambda: self._body(headers, receive))
        fields = headers_of(reply, method)
        await send({"type": "http.response.start", "status": reply.status, "headers": fields})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else reply.body})

    async def respond(self, method: str, path: str, sent: bytes, address: str, body: Body) -> Reply:
        """The answer to a request; never an exception.

        Args:
            method: HTTP method.
            path: decoded path, without the query.
            sent: value of the header Authorization.
            address: address of the caller.
            body: returns the whole body, or raises a `Problem`.
        """
        route = "other"
        try:
            self.rate.check(address)
            if method == "POST":
                route = route_of(path)
                reply = Reply(*await self._post(path, sent, body))
            elif method in ("GET", "HEAD"):
                route = path if path in _PAGES else "/v1/events/{id}"
                reply = await self._get(path, sent)
            else:
                raise Problem(405, "GET or POST", method[:20], "method")
        except Exception as error:
            reply = refused(error, route)
        self.metrics.requests[route, reply.status] += 1
        return reply

    async def _post(self, path: str, sent: bytes, body: Body) -> Answer:
        if path == "/v1/rank":
            self.tokens.check("decide", sent)
            return await self.routes.rank(await body())
        if path == "/v1/batch":
            self.tokens.check("decide", sent)
            self.tokens.check("reward", sent)
            return await self.routes.batch(await body())
        if path in _PAGES:
            raise Problem(405, "GET", "POST", "method")
        event_id, verb = _event(path)
        if verb == "reward":
            self.tokens.check("reward", sent)
            return await self.routes.reward(event_id, await body())
        if verb == "activate":
            self.tokens.check("decide", sent)
            await body()
            return await self.routes.activate(event_id)
        raise Problem(404, "a known path", "another one", "path", "see /openapi.json")

    async def _body(self, headers: Any, receive: Receive) -> bytes:
        """The whole body; raises a `Problem` if it is too long or too slow."""
        for name, value in headers:
            if name == b"content-length" and value.isdigit() and int(value) > self._most:
                raise self._too_long()
        message = await receive()
        body: bytes = message.get("body", b"")
        if not message.get("more_body"):
            if len(body) > self._most:
                raise self._too_long()
            return body
        try:
            async with asyncio.timeout(self.service.settings.server.timeout):
                parts, size = [body], len(body)
                while message.get("more_body"):
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(400, "a whole body", "a connection that was closed", "body")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._most:
                        raise self._too_long()
                return b"".join(parts)
        except TimeoutError:
            raise Problem(408, "a body in time", "a slower one", "body", "send it again") from None

    def _too_long(self) -> Problem:
        return Problem(
            413, f"a body of at most {self._most:,} bytes", "a longer one", "body", "send less at once"
        )

    # ------------------------------------------------------------------ pages

    async def _get(self, path: str, sent: bytes) -> Reply:
        if path == "/healthz":
            return Reply(200, b'{"status":"alive"}')
        if path == "/readyz":
            return Reply(*self._readiness())
        if path == "/openapi.json":
            return Reply(200, _ENCODE(description()))
        self.tokens.check("admin", sent)
        if path == "/metrics":
            return Reply(200, self.metrics.text(self.gauges()).encode(), TEXT)
        if path == "/" and self._page is not None:
            return Reply(200, (await asyncio.to_thread(self._page)).encode(), HTML)
        if path == "/report" and self._report is not None:
            return Reply(200, (await asyncio.to_thread(self._report)).encode(), HTML)
        event_id, verb = _event(path)
        if verb:
            raise Problem(
                405 if verb in ("reward", "activate") else 404, "a known path", "another one", "path"
            )
        return Reply(*await self.routes.event(event_id))

    def _readiness(self) -> Answer:
        failing = getattr(self.service.store, "failing", False)
        if self.ready and not failing:
            return 200, b'{"status":"ready"}'
        return 503, _ENCODE({"status": "not ready", "why": "the store fails" if failing else "starting"})

    def gauges(self) -> list[tuple[str, dict[str, str], float]]:
        """The current values of the gauges for Prometheus."""
        service = self.service
        gauges: list[tuple[str, dict[str, str], float]] = [
            ("shpi_store_failing", {}, float(getattr(service.store, "failing", False))),
            ("shpi_orphan_rewards", {}, float(getattr(service.store, "orphans", 0))),
            ("shpi_clock_jumps_total", {}, float(service.clock.jumps)),
            ("shpi_canary_share", {}, service.canary_share),
        ]
        compared = {"canary": service.monitor.canary, "hold_back": service.monitor.hold_back}
        for name, comparison in compared.items():
            if comparison is not None and comparison.looks:
                last = comparison.looks[-1][1]
                parts = {"estimate": last.estimate, "lower": last.lower, "upper": last.upper}
                gauges += [(f"shpi_{name}_difference", {"part": k}, v) for k, v in parts.items()]
        return gauges + [("shpi_alarms", {"name": name}, 1.0) for name in service.alarms]


_PAGES = ("/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/report")


def route_of(path: str) -> str:
    """The path as a label of a metric: without ids, one of a few values."""
    if path in ("/v1/rank", "/v1/batch"):
        return path
    verb = path.rpartition("/")[2]
    return f"/v1/events/{{id}}/{verb}" if verb in ("reward", "activate") else "other"


def _event(path: str) -> tuple[str, str]:
    """The id and the verb of ``/v1/events/ID/VERB``; the verb is empty if there is none."""
    if not path.startswith("/v1/events/"):
        raise Problem(404, "a known path", "another one", "path", "see /openapi.json")
    event_id, _, verb = path.removeprefix("/v1/events/").partition("/")
    requests.EVENT_ID.decode(_ENCODE(event_id))
    return event_id, verb
