"""`Metric`: the value of a user in calendar time; both the learner's reward and the gate's metric."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from shpi.data.durations import Duration, describe, parse_duration
from shpi.errors import ConfigError

COUNTS = ("decisions", "sessions", "active days", "returns")  # metrics that need no column
EXAMPLES = '"purchases in 30d", "active days in 30d", "returns within 7d in 90d", "reward in 90d per 30d"'
_TEXT = re.compile(
    r"(?P<what>.+?)"
    r"(?:\s+within\s+(?P<within>\S+))?"
    r"(?:\s+in\s+(?P<window>\S+))?"
    r"(?:\s+per\s+(?P<per>\S+))?"
    r"(?:\s+from\s+(?P<entry>\S+))?"
)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A quantity that is summed for each user, and the time over which it is summed.

    >>> Metric.parse("purchases in 30d").words()
    "adds up each user's purchases in the 30 days after the first decision"

    Args:
        what: ``"reward"``, the name of an outcome (a metric or an event of the column map), or a count:
            ``"decisions"``, ``"sessions"``, ``"active days"`` (UTC), ``"returns"`` (sessions after which the
            user starts another one). A column of the same name takes precedence.
        window: time after entry for which a user counts, such as ``"30d"``; None: to the end of the log.
            Users who entered too late are observed for less; weights correct for that.
        within: time after the end of a session in which a return must come; only for "returns".
        per: turns the sum into a rate: window ``"90d"`` and per ``"30d"`` give the mean per month.
        entry: None: users enter with their first decision; an ISO date: with their first one from then on.
    """

    what: str = "reward"
    window: Duration | None = None
    within: Duration | None = None
    per: Duration | None = None
    entry: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.what, str) or not self.what.strip():
            raise ConfigError(expected=f"a metric such as {EXAMPLES}", found=repr(self.what))
        for name in ("window", "within", "per"):
            value = getattr(self, name)
            if isinstance(value, str):
                parse_duration(value)
        if self.what == "returns" and self.within is None:
            object.__setattr__(self, "within", "7d")
        if self.what != "returns" and self.within is not None:
            raise ConfigError(
                expected="'within' with returns only",
                found=f"{self.what} within {self.within}",
                remedy=f"for a window after entry write '{self.what} in {self.within}'",
            )
        if self.per is not None and self.window is None:
            raise ConfigError(expected="'per' together with a window", found=f"per {self.per}, no window")
        if self.entry is not None:
            try:
                datetime.fromisoformat(self.entry)
            except (TypeError, ValueError):
                raise ConfigError(expected="entry as an ISO date", found=repr(self.entry)) from None

    # ------------------------------------------------------------------ spellings

    @classmethod
    def parse(cls, text: str) -> Metric:
        """Parse text: WHAT [within TIME] [in TIME] [per TIME] [from DATE]."""
        match = _TEXT.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise ConfigError(expected=f"a metric such as {EXAMPLES}", found=repr(text))
        return cls(**{key: _number(value) for key, value in match.groupdict().items() if value is not None})

    @classmethod
    def of(cls, value: Metric | str | Mapping[str, Any]) -> Metric:
        """A metric from text or from a mapping of a column map; a `Metric` is returned as it is."""
        if isinstance(value, Metric):
            return value
        if isinstance(value, str):
            return cls.parse(value)
        if isinstance(value, Mapping):
            known = [item.name for item in fields(cls)]
            unknown = sorted(set(value) - set(known))
            if unknown:
                raise ConfigError(
                    expected=f"keys of a metric among {', '.join(known)}", found=f"unknown {unknown}"
                )
            return cls(**value)
        raise ConfigError(expected=f"a metric such as {EXAMPLES}", found=repr(value))

    def to_mapping(self) -> dict[str, Any]:
        """The settings that differ from the defaults, for a column map or JSON."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @property
    def label(self) -> str:
        """A short name, e.g. "purchases in 30d"."""
        words = [self.what]
        for word, value in (("within", self.within), ("in", self.window), ("per", self.per)):
            words += [] if value is None else [word, str(value)]
        return " ".join(words)

    def words(self) -> str:
        """The metric as half a sentence."""
        what = f"each user's {self.what}"
        if self.what == "returns":
            what = f"each user's sessions that are followed by another one within {_long(self.within)}"
        verb = "counts" if self.what in COUNTS else "adds up"
        first = "the first decision" if self.entry is None else f"the first decision from {self.entry} on"
        time = f"in the {_long(self.window)} after {first}" if self.window is not None else ""
        if self.window is None:
            time = "as far as the log goes" + ("" if self.entry is None else f", from {self.entry} on")
        rate = "" if self.per is None else f", as a mean per {_long(self.per)}"
        return f"{verb} {what} {time}{rate}"


def _long(value: Duration | None) -> str:
    return describe(float(parse_duration(value))) if isinstance(value, str) else f"{value}"


def _number(text: str) -> Any:
    """An int if the text is one: a duration in a log whose times are plain numbers."""
    try:
        return int(text)
    except ValueError:
        return text
