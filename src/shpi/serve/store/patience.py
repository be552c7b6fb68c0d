"""How long the next group waits for the callers who were just answered.

Callers that wait for an answer come back together, a moment after it. A flush that starts with the first of
them makes all others wait for two flushes; a flush that starts a little later takes them along. So a group
waits a few milliseconds, or until as many have come as were answered. Where they do not come back (each
caller asks once), waiting was in vain, and is tried ever more rarely.
"""

from __future__ import annotations

LONGEST = 0.005  # seconds
_RAREST = 64  # flushes without waiting after one in vain


class Patience:
    """What one writer has learned of its callers."""

    def __init__(self) -> None:
        self._skip = 0  # flushes after which nobody is waited for
        self._after_next = 1  # that number, if the next wait is in vain
        self._answered = self._before = 0  # callers answered by the last flush; requests that came during it

    def wait(self, answered: int, come: int) -> float:
        """Seconds to wait after a flush that answered some, while others came; 0: flush at once."""
        self._answered, self._before = answered, come
        if answered < 2:
            return 0.0
        if self._skip:
            self._skip -= 1
            return 0.0
        return LONGEST

    def enough(self, come: int) -> bool:
        """Whether everybody who is waited for has come."""
        return come >= self._before + self._answered

    def waited(self, come: int) -> None:
        """The wait is over, and so many have come since the flush began."""
        if 2 * (come - self._before) >= self._answered:
            self._after_next = 1
        else:
            self._skip, self._after_next = self._after_next, min(2 * self._after_next, _RAREST)
