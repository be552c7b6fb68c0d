"""Parses the head of an HTTP/1.1 request strictly: what two parsers could read differently is refused.

A request has a Content-Length or no body. Chunked bodies (411), folded lines, spaces before a colon, control
characters, two lengths and targets other than a path are errors. Clients repeat their headers, so parsed
blocks are cached: the next request with the same block costs one look-up.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from shpi.serve.web.problems import Problem

LONGEST = 16_384  # most bytes of a head
END = b"\r\n\r\n"
_MOST_KEPT, _LONGEST_KEPT = 1000, 1024  # most parsed blocks in the cache, and bytes of each
_LINE = re.compile(rb"([A-Z]{1,20}) (/[\x21-\x7e]*) HTTP/1\.([01])")
_BLOCK = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n)*")


class Fields(NamedTuple):
    """The headers that matter."""

    length: int = 0
    authorization: bytes = b""
    closes: bool = False
    keep_alive: bool = False  # HTTP/1.0 must ask for it
    expects_continue: bool = False  # the caller waits for 100 Continue


class Target(NamedTuple):
    """The parts of the request line."""

    method: str
    path: str
    http_1_0: bool


class Heads:
    """Parses heads, with a cache of header blocks."""

    def __init__(self) -> None:
        self.kept: dict[bytes, Fields] = {}  # by block; every line ends in CRLF

    def fields(self, block: bytes) -> Fields:
        """Parse a block of headers, every line ended by CRLF; raises a `Problem`."""
        parsed = self.kept.get(block)
        if parsed is not None:
            return parsed
        fields = _fields(block)
        if len(block) <= _LONGEST_KEPT:
            if len(self.kept) >= _MOST_KEPT:
                self.kept.clear()
            self.kept[block] = fields
        return fields


def target_of(line: bytes) -> Target:
    """Parse the request line; raises a `Problem`."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise _bad("a request line of HTTP/1.1 with a path", "another line")
    method, target, version = match.groups()
    return Target(method.decode(), unquote(target.partition(b"?")[0]), version == b"0")


def _fields(block: bytes) -> Fields:
    if not _BLOCK.fullmatch(block):
        raise _bad("headers of the form 'name: value'", "another line")
    headers: dict[bytes, bytes] = {}
    for line in block.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if name in _ONCE and headers.setdefault(name, value) != value:
            raise _bad(f"one header {name.decode()}", "two that differ")
        headers[name] = value
    if b"transfer-encoding" in headers:
        raise Problem(411, "a body with a Content-Length", "a chunked one", "headers", "send it in one piece")
    length = headers.get(b"content-length", b"0")
    if not (length.isdigit() and len(length) <= 12):
        raise _bad("a Content-Length", "no number")
    connection = headers.get(b"connection", b"").lower()
    return Fields(
        length=int(length),
        authorization=headers.get(b"authorization", b""),
        closes=b"close" in connection,
        keep_alive=b"keep-alive" in connection,
        expects_continue=headers.get(b"expect", b"").lower() == b"100-continue",
    )


_ONCE = (b"content-length", b"authorization", b"host", b"transfer-encoding", b"expect")


def _bad(expected: str, found: str) -> Problem:
    return Problem(400, expected, found, "the head of the request")
