"""What every target of the fuzzers asks for: a result, or an error of shpi with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shpi.errors import ShpiError


def attempt(work: Callable[[], Any]) -> tuple[str, Any]:
    """Run; an error of shpi must have a remedy, any other exception is a finding."""
    try:
        return "accepted", work()
    except ShpiError as error:
        if not error.remedy:
            raise AssertionError(f"no remedy: {error}") from error
        return "refused", None
