"""Guard metrics, which must not fall, or must not rise; they are tested like the lift."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shpi.errors import ConfigError
from shpi.ope.inference.per import check_per
from shpi.ope.problem import Rewards
from shpi.ope.results import Per


@dataclass(frozen=True, kw_only=True)
class Guard:
    """A metric that must not fall by more than ``max_drop``, or must not rise by more than ``max_rise``.

    Args:
        metric: name of a metric of the log, or a function of a log.
        max_drop: largest acceptable fall, at least 0; 0 if neither ``max_drop`` nor ``max_rise`` is given.
        max_rise: largest acceptable rise, at least 0, for metrics that should stay low, such as complaints.
        relative: whether these are shares of the logging policy's value (0.02: 2 %), or in the metric's unit.
        per: "user" (clicks per user), "decision" (the click rate) or "session"; None: as in the evaluation.
        name: name in the verdict; None: that of the metric.
    """

    metric: Rewards
    max_drop: float | None = None
    max_rise: float | None = None
    relative: bool = True
    per: Per | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.max_drop is not None and self.max_rise is not None:
            raise ConfigError(
                expected="max_drop or max_rise",
                found="both",
                where="Guard",
                remedy="write two guards for a metric that must neither fall nor rise",
            )
        if not (math.isfinite(self.amount) and self.amount >= 0):
            which = "max_drop" if self.max_rise is None else "max_rise"
            raise ConfigError(expected=f"{which} of at least 0", found=str(self.amount), where="Guard")
        if self.per is not None:
            check_per(self.per, "Guard")

    @property
    def rises(self) -> bool:
        """Whether it guards against a rise."""
        return self.max_rise is not None

    @property
    def amount(self) -> float:
        """The largest acceptable fall or rise."""
        if self.max_rise is not None:
            return self.max_rise
        return 0.0 if self.max_drop is None else self.max_drop

    @property
    def label(self) -> str:
        """The name in the verdict."""
        named = self.metric if isinstance(self.metric, str) else getattr(self.metric, "__name__", "guard")
        return self.name or named

    def words(self, per: str) -> str:
        """The condition in words, for a sentence."""
        verb = "rise" if self.rises else "fall"
        amount = f"{self.amount:.3g}" if not self.relative else f"{100 * self.amount:.3g} %"
        limit = f"must not {verb}" + (f" by more than {amount}" if self.amount > 0 else "")
        return f"the guard '{self.label}' per {per} ({limit})"
