"""Which users get which policy: a salted hash of the user gives the arm, the same for the folder's lifetime.

    0                 hold_back          hold_back + canary                                    1
    |--- hold-back ---|----- canary -----|----------------------- champion --------------------|

A user who is in a canary of 1 % is in it at 5 and at 20 % too, and the hold-back never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Literal

from shpi.errors import ConfigError

Arm = Literal["hold-back", "canary", "champion", "apprentice"]
STAGES = (0.01, 0.05, 0.20)  # shares of users in the canary, stage by stage
_SPAN = float(2**64)  # number of different 64-bit hashes
_FINEST = 2.0**-53  # resolution of a share: the mantissa of a double


@dataclass(frozen=True, kw_only=True)
class Arms:
    """The shares of the arms.

    Args:
        salt: random bytes of the folder, so that two services do not hold back the same users.
        hold_back: the share of users who stay with the first policy for ever.
        canary: the share of users who get the new policy; 0 without one.
    """

    salt: bytes
    hold_back: float = 0.05
    canary: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.hold_back < 1 and 0 <= self.canary <= 1 - self.hold_back):
            raise ConfigError(
                expected="shares of hold-back and canary that leave something",
                found=f"{self.hold_back} and {self.canary}",
                where="arms",
            )

    def place(self, user: str) -> float:
        """The user's hash, scaled to between 0 and 1."""
        hashed = self._keyed.copy()
        hashed.update(user.encode())
        return int.from_bytes(hashed.digest(), "little") / _SPAN

    @cached_property
    def _keyed(self) -> blake2b:
        return blake2b(digest_size=8, key=self.salt, person=b"shpi arms")

    def of(self, user: str) -> Arm:
        """The arm of a user."""
        place = self.place(user)
        if place < self.hold_back:
            return "hold-back"
        return "canary" if place < self.hold_back + self.canary else "champion"


def uniform_of(event_id: str, salt: bytes) -> float:
    """The random number in [0, 1) behind a decision: a keyed hash of its id, so that it can be replayed."""
    return draws(salt)(event_id)


def draws(salt: bytes) -> Callable[[str], float]:
    """`uniform_of` with the salt fixed."""
    keyed = blake2b(digest_size=8, key=salt, person=b"shpi draw")

    def uniform(event_id: str) -> float:
        hashed = keyed.copy()
        hashed.update(event_id.encode())
        return (int.from_bytes(hashed.digest(), "little") >> 11) * _FINEST

    return uniform
