"""HTTP/1.1 as an `asyncio.Protocol`: one request after the other on each connection, with strict limits.

A framework, or ASGI itself, costs more than the decision. Here a request is cut out of the stream, and the
common ones go to `Hot` without a coroutine; all others to `App.respond`. Pipelined requests wait in the
buffer until the one before them is answered, so answers keep their order.

Limits: a head of 16 kB (431), a body of ``server.body_bytes`` (413), ``server.timeout`` seconds for a request
to arrive (408), 75 seconds of silence, `MOST` connections (503). After an error in the form of a request the
connection is closed: the bytes that follow cannot be trusted.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from shpi.serve.store import FileStore
from shpi.serve.web.app import App
from shpi.serve.web.heads import END, LONGEST, Fields, Heads, target_of
from shpi.serve.web.hot import Hot
from shpi.serve.web.problems import Problem
from shpi.serve.web.replies import STATUS_LINES, Reply, headers_of, refused

MOST = 5000  # connections at a time
SILENT = 75.0  # seconds without traffic after which a connection is closed
_SWEEP = 1.0  # seconds between checks for silent connections
_PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_RANK = b"POST /v1/rank HTTP/1.1\r\n"
_HOT = re.compile(rb"POST /v1/(?:(rank)|events/([A-Za-z0-9._:~-]{1,128})/(reward|activate)) HTTP/1\.1")


class ConnectionFactory:
    """The state that all connections of a server share; makes a `Front` for each."""

    def __init__(self, app: App) -> None:
        self.app, self.heads, self.requests = app, Heads(), app.metrics.requests
        self.hot = None
        if isinstance(app.service.store, FileStore):
            self.hot = Hot(app.service, app.routes, app.metrics)
        limits = app.service.settings.server
        self.longest, self.timeout = limits.body_bytes, limits.timeout
        self.connections: set[Any] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    def __call__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> Front:
        """Make the protocol of a new connection, for uvicorn."""
        self.connections = server_state.connections
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(_SWEEP, self._sweep)
        return Front(self, server_state.tasks)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self.connections):
            connection.check(now)
        self._sweeper = loop.call_later(_SWEEP, self._sweep) if self.connections else None


class Front(asyncio.Protocol):
    """One connection."""

    def __init__(self, factory: ConnectionFactory, tasks: set[Any]) -> None:
        self.factory, self._tasks = factory, tasks
        self._buffer = b""
        self._busy = False  # a request is being answered
        self._over = False  # no further request is read
        self._full = False  # the caller does not read its answers
        self._needed = 0  # bytes that the buffer needs to hold a whole request
        self._continued = False
        self._since = 0.0  # when something last happened
        self._route = ""

    # ------------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register a new connection, or refuse it if there are too many."""
        self._transport: Any = transport
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._address = (transport.get_extra_info("peername") or ("",))[0]
        self.factory.connections.add(self)
        if len(self.factory.connections) > MOST:
            self._refuse(Problem(503, f"at most {MOST} connections", "more", "the server", "try again later"))

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the connection; a pending request is stored all the same."""
        self._over, self._buffer = True, b""
        self.factory.connections.discard(self)

    def pause_writing(self) -> None:
        """Take no further request while the caller does not read."""
        self._full = True

    def resume_writing(self) -> None:
        """Go on with the next request: the caller reads again."""
        self._full = False
        if not self._busy:
            self._advance()

    def shutdown(self) -> None:
        """Answer the current request and close, since the server stops."""
        if self._busy:
            self._over = True
        else:
            self._transport.close()

    def check(self, now: float) -> None:
        """Close the connection if it has been silent or slow for too long."""
        if self._busy:
            return
        waited = now - self._since
        if self._over:
            if waited > self.factory.timeout:
                self._transport.abort()
        elif self._buffer and not self._full:
            if waited > self.factory.timeout:
                self._refuse(Problem(408, "a request in time", "a slower one", "body", "send it again"))
        elif waited > SILENT:
            self._transport.abort()

    # ------------------------------------------------------------------ requests

    def data_received(self, data: bytes) -> None:
        """Take in bytes of one or more requests."""
        if self._over:
            return
        if not self._buffer:
            self._since = self._loop.time()
            if not (self._busy or self._full) and self._take_rank(data):
                return
            self._buffer = data
        else:
            self._buffer += data
        if not self._busy:
            if len(self._buffer) >= self._needed:
                self._advance()
        elif len(self._buffer) > LONGEST + self.factory.longest:
            self._transport.pause_reading()

    def _take_rank(self, data: bytes) -> bool:
        """Handle the bytes if they are one whole rank request with headers seen before; else return False."""
        hot = self.factory.hot
        if hot is None or not data.startswith(_RANK):
            return False
        end = data.find(END)
        fields = self.factory.heads.kept.get(data[len(_RANK) : end + 2])
        if fields is None or len(data) != end + 4 + fields.length or fields.closes:
            return False
        self._busy = True
        self._rank(hot, fields, data[end + 4 :])
        return True

    def _advance(self) -> None:
        """Handle the next request in the buffer if it is complete."""
        while self._buffer and not (self._busy or self._over or self._full):
            try:
                request = self._cut()
            except Problem as problem:
                self._refuse(problem)
                return
            if request is None:
                return
            line, fields, body = request
            self._needed, self._continued, self._busy = 0, False, True
            self._over = fields.closes
            self._take(line, fields, body)

    def _cut(self) -> tuple[bytes, Fields, bytes] | None:
        """The first line, the headers and the body of the next request; None until it is complete."""
        data = self._buffer
        end = data.find(END)
        if end > LONGEST or (end < 0 and len(data) > LONGEST):
            raise Problem(431, f"a head of at most {LONGEST:,} bytes", "a longer one", "headers")
        if end < 0:
            return None
        first = data.find(b"\r\n")
        fields = self.factory.heads.fields(data[first + 2 : end + 2])
        if fields.length > self.factory.longest:
            most = f"a body of at most {self.factory.longest:,} bytes"
            raise Problem(413, most, "a longer one", "body", "send less at once")
        start = end + 4
        whole = start + fields.length
        if len(data) < whole:
            self._needed = whole
            if fields.expects_continue and not self._continued:
                self._continued = True
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return None
        self._buffer = data[whole:] if len(data) > whole else b""
        return data[:first], fields, data[start:whole]

    def _take(self, line: bytes, fields: Fields, body: bytes) -> None:
        match = _HOT.fullmatch(line) if self.factory.hot is not None else None
        if match is None:
            self._respond(line, fields, body)
            return
        app, hot = self.factory.app, self.factory.hot
        assert hot is not None
        rank, event, verb = match.groups()
        if rank is not None:
            self._rank(hot, fields, body)
            return
        self._route = f"/v1/events/{{id}}/{verb.decode()}"
        try:
            if app.rate.per_second:
                app.rate.check(self._address)
            if verb == b"reward":
                app.tokens.check("reward", fields.authorization)
                hot.reward(event.decode(), body, self._send)
            else:
                app.tokens.check("decide", fields.authorization)
                hot.activate(event.decode(), self._send)
        except Exception as error:
            self._send(*refused(error, self._route)[:2])

    def _rank(self, hot: Hot, fields: Fields, body: bytes) -> None:
        app, self._route = self.factory.app, "/v1/rank"
        try:
            if app.rate.per_second:
                app.rate.check(self._address)
            app.tokens.check("decide", fields.authorization)
            hot.rank(body, self._send)
        except Exception as error:
            self._send(*refused(error, self._route)[:2])

    def _send(self, status: int, body: bytes) -> None:
        """Send the answer to a common request."""
        self.factory.requests[self._route, status] += 1
        if status == 200 and not self._over:
            self._write(_PLAIN % (len(body), body))
        else:
            self._reply(Reply(status, body), "POST")

    def _respond(self, line: bytes, fields: Fields, body: bytes) -> None:
        """Answer any other request in a separate task."""
        try:
            target = target_of(line)
        except Problem as problem:
            self._refuse(problem)
            return
        if target.http_1_0 and not fields.keep_alive:
            self._over = True

        async def whole() -> bytes:
            return body

        async def work() -> None:
            reply = await self.factory.app.respond(
                target.method, target.path, fields.authorization, self._address, whole
            )
            self._reply(reply, target.method)

        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------------ answers

    def _refuse(self, problem: Problem) -> None:
        """Answer an invalid request, and read no further."""
        self._over, self._buffer = True, b""
        self.factory.requests["other", problem.status] += 1
        self._reply(refused(problem, "other"), "POST")

    def _reply(self, reply: Reply, method: str) -> None:
        fields = headers_of(reply, method)
        if self._over:
            fields.append((b"connection", b"close"))
        head = b"".join(b"%b: %b\r\n" % field for field in fields)
        self._write(STATUS_LINES[reply.status] + head + b"\r\n" + (b"" if method == "HEAD" else reply.body))

    def _write(self, answer: bytes) -> None:
        self._busy, self._since = False, self._loop.time()
        transport = self._transport
        if transport.is_closing():
            return
        transport.write(answer)
        if self._over:
            transport.write_eof()  # the caller reads the answer and closes; else `check` does
        elif self._buffer:
            transport.resume_reading()
            self._loop.call_soon(self._advance)
