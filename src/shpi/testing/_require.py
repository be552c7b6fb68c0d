"""The assertion helper of all suites."""

from __future__ import annotations


def require(holds: bool, message: str) -> None:
    """Raise an AssertionError with the message unless ``holds``."""
    if not holds:
        raise AssertionError(message)
