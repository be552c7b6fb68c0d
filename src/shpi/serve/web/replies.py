"""HTTP answers: a status, a body and headers."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from shpi.serve.web.problems import Problem, problem_of

JSON = (b"content-type", b"application/json")
HTML = (b"content-type", b"text/html; charset=utf-8")
TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_SAFE = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'",
    ),
)
_LOG = logging.getLogger("shpi.serve")
_ENCODE = msgspec.json.Encoder().encode
_RETRY = (429, 503)  # status codes that carry a Retry-After header
STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class Reply(NamedTuple):
    """An answer: a status, a body, and the header Content-Type."""

    status: int
    body: bytes
    kind: tuple[bytes, bytes] = JSON


def refused(error: Exception, route: str) -> Reply:
    """Turn an error into the answer to its request."""
    problem = problem_of(error)
    if problem is None:
        _LOG.error("a bug, on %s", route, exc_info=error)
        problem = Problem(500, "an answer", "a bug in shpi", route, "see the server's log")
    return Reply(problem.status, _ENCODE(problem.body()))


def headers_of(reply: Reply, method: str) -> list[tuple[bytes, bytes]]:
    """The headers of an answer."""
    headers = [reply.kind, (b"content-length", b"%d" % len(reply.body))]
    if reply.kind is not JSON or method != "POST":
        headers += _SAFE
    if reply.status in _RETRY:
        headers.append((b"retry-after", b"1"))
    return headers
