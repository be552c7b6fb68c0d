"""The state that is in force for serving, and the ids of decisions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from shpi.serve.decide import Arm, Arms
from shpi.serve.loop.control import Control

_MOST_LATELY = 2**16  # users whose arm is cached


@dataclass(eq=False)
class Serving:
    """The control state, arms and random numbers in force; a change replaces the whole object."""

    control: Control
    arms: Arms
    uniform: Callable[[str], float]  # from an event id to its random number in [0, 1)
    lately: dict[str, tuple[Arm, str]] = field(default_factory=dict)  # cache: user to arm and policy

    def who(self, user: str) -> tuple[Arm, str]:
        """The arm and the policy of a user."""
        known = self.lately.get(user)
        if known is None:
            if len(self.lately) >= _MOST_LATELY:
                self.lately.clear()
            known = self.lately[user] = self._who(user)
        return known

    def _who(self, user: str) -> tuple[Arm, str]:
        arm, control = self.arms.of(user), self.control
        if arm == "canary" and control.canary is not None:
            return arm, control.canary.policy
        if arm == "hold-back":
            return arm, control.start
        return ("apprentice" if control.champion == "apprentice" else "champion"), control.champion


class Ids:
    """Random 128-bit ids, drawn from the system 256 at a time: one at a time took 5 % of a request."""

    def __init__(self) -> None:
        self._drawn: Iterator[str] = iter(())
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._drawn = iter(())

    def new(self) -> str:
        """A fresh id; safe after a fork."""
        for drawn in self._drawn:
            return drawn
        text = os.urandom(16 * 256).hex()
        self._drawn = iter([text[place : place + 32] for place in range(0, len(text), 32)])
        return next(self._drawn)
