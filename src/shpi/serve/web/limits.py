"""Access control by bearer tokens, and rate limits by address."""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterable

from shpi.serve.settings import Settings, secret
from shpi.serve.web.problems import Problem

_MOST_ADDRESSES = 10_000  # addresses whose rates are remembered
_BURST = 2.0  # size of a burst, in seconds of the allowed rate


class Tokens:
    """Bearer tokens, for deciding, rewarding and administering."""

    def __init__(self, settings: Settings) -> None:
        tokens = settings.tokens
        admin = [secret(token) for token in tokens.admin]
        self._allowed = {
            "decide": self._bytes([*map(secret, tokens.decide), *admin]) if tokens.decide else (),
            "reward": self._bytes([*map(secret, tokens.reward), *admin]) if tokens.reward else (),
            "admin": self._bytes(admin),
        }
        # If decisions need a token, single events and the page must not be open to everyone.
        self._closed = bool(tokens.decide or tokens.reward) and not admin

    @staticmethod
    def _bytes(tokens: Iterable[str]) -> tuple[bytes, ...]:
        return tuple(f"Bearer {token}".encode() for token in tokens)

    def check(self, role: str, sent: bytes) -> None:
        """Raise a `Problem` unless the value of the header Authorization allows this role."""
        allowed = self._allowed[role]
        if not allowed:
            if role == "admin" and self._closed:
                raise Problem(403, "an admin token in serve.toml", "none", "tokens.admin", "set tokens.admin")
            return
        matches = [hmac.compare_digest(sent, token) for token in allowed]  # compares all, in constant time
        if not any(matches):
            raise Problem(
                401,
                f"a token that may {role}",
                "none" if not sent else "another one",
                "the header Authorization",
                "send 'Authorization: Bearer TOKEN'",
            )


class Rate:
    """A rate limit by address: a token bucket for each."""

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        self._buckets: dict[str, tuple[float, float]] = {}  # requests left, and the time of that count

    def check(self, address: str) -> None:
        """Count a request; raise a `Problem` if there were too many."""
        if not self.per_second:
            return
        now, most = time.monotonic(), self.per_second * _BURST
        left, then = self._buckets.get(address, (most, now))
        left = min(most, left + (now - then) * self.per_second)
        if left < 1:
            raise Problem(
                429, f"at most {self.per_second:g} requests per second", "more", "this address", "send fewer"
            )
        if len(self._buckets) >= _MOST_ADDRESSES and address not in self._buckets:
            self._buckets.clear()
        self._buckets[address] = (left - 1, now)
