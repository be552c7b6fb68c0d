"""How every suite says what does not hold."""

from __future__ import annotations


def require(holds: bool, message: str) -> None:
    """Raise an AssertionError with the message unless it holds."""
    if not holds:
        raise AssertionError(message)
