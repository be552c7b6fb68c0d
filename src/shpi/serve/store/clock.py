"""Times that never run backwards, whatever the machine's clock does."""

from __future__ import annotations

import time

JUMP = 5_000_000  # microseconds by which wall and monotonic clock may differ between two decisions


class Clock:
    """Microseconds since 1970, strictly increasing with every call.

    A clock that is set back would put a user's later decisions before earlier ones. So time stands still
    (in steps of a microsecond) until the clock has caught up. ``jumps`` counts the jumps that were noticed.
    """

    def __init__(self) -> None:
        self.last = 0
        self.jumps = 0
        self._wall, self._steady = self._read()

    @staticmethod
    def _read() -> tuple[int, int]:
        return time.time_ns() // 1000, time.monotonic_ns() // 1000

    def now(self) -> int:
        """The next time."""
        wall, steady = self._read()
        if abs((wall - self._wall) - (steady - self._steady)) > JUMP:
            self.jumps += 1
        self._wall, self._steady = wall, steady
        self.last = wall if wall > self.last else self.last + 1
        return self.last

    def seen(self, moment: int) -> None:
        """Let no later time come before ``moment``."""
        self.last = max(self.last, moment)
