"""HTTP errors: a status, what was expected, what was found, where, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from shpi.errors import ShpiError
from shpi.serve.store.base import StoreUnavailableError

_WHERE = re.compile(r" - at `(?P<where>[^`]*)`$")
_EXPECTED = re.compile(r"Expected (?P<expected>.*), got (?P<found>.*)")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")


@dataclass(eq=False)
class Problem(Exception):
    """An error that becomes the answer to a request."""

    status: int
    expected: str
    found: str
    where: str = ""
    remedy: str = ""

    def body(self) -> dict[str, dict[str, str]]:
        """The body of the answer, for JSON."""
        message = str(
            ShpiError(expected=self.expected, found=self.found, where=self.where, remedy=self.remedy)
        )
        parts = {"expected": self.expected, "found": self.found, "where": self.where, "remedy": self.remedy}
        return {"error": {"message": message, **parts}}


def problem_of(error: Exception) -> Problem | None:
    """The answer to an error that a request may cause; None for a bug."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, StoreUnavailableError):
        return Problem(503, error.expected, error.found, error.where, error.remedy)
    if isinstance(error, msgspec.ValidationError):
        return _invalid(str(error))
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError | RecursionError):
        return Problem(400, "a body of JSON", str(error)[:200], "body", "send UTF-8 JSON")
    if isinstance(error, ShpiError):
        return Problem(422, error.expected, error.found, error.where, error.remedy)
    return None


def _invalid(message: str) -> Problem:
    place = _WHERE.search(message)
    where = place["where"] if place else "$"
    text = _WHERE.sub("", message)
    unknown, missing, wrong = (pattern.fullmatch(text) for pattern in (_UNKNOWN, _MISSING, _EXPECTED))
    if unknown:
        return Problem(422, "known fields only", f"'{unknown['name'][:60]}'", where, "see /openapi.json")
    if missing:
        return Problem(422, f"the field '{missing['name']}'", "none", where, "see /openapi.json")
    if wrong:
        return Problem(422, wrong["expected"], wrong["found"], where, "see /openapi.json")
    return Problem(422, text.removeprefix("Expected "), "another value", where, "see /openapi.json")
