"""Decides how long the next group waits for the callers that were just answered.

Callers that wait for an answer send their next requests together, a moment after it. A flush that starts with
the first of them makes all others wait for two flushes; one that starts a little later includes them. So a
group waits a few milliseconds, or until as many requests have come as were answered. If they do not come
(each caller asks once), the wait was wasted, and waits become ever rarer.
"""

from __future__ import annotations

LONGEST = 0.005  # seconds to wait
_RAREST = 64  # most flushes without a wait after a wasted one


class FlushDelay:
    """Whether waiting for callers has paid off so far."""

    def __init__(self) -> None:
        self._skip = 0  # further flushes without a wait
        self._after_next = 1  # the next value of _skip if the next wait is wasted
        self._answered = self._before = 0  # callers answered by the last flush; requests that came during it

    def seconds_after_flush(self, answered: int, arrived: int) -> float:
        """Seconds to wait after a flush, during which ``arrived`` requests came; 0: flush at once."""
        self._answered, self._before = answered, arrived
        if answered < 2:
            return 0.0
        if self._skip:
            self._skip -= 1
            return 0.0
        return LONGEST

    def all_arrived(self, arrived: int) -> bool:
        """Whether all expected requests have come."""
        return arrived >= self._before + self._answered

    def record_wait(self, arrived: int) -> None:
        """Record the end of a wait, with the number of requests since the flush began."""
        if 2 * (arrived - self._before) >= self._answered:
            self._after_next = 1
        else:
            self._skip, self._after_next = self._after_next, min(2 * self._after_next, _RAREST)
