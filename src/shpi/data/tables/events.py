"""`Events`: outcomes from a second table, as the column map describes them (`shpi.data.tables.join`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from shpi.data.durations import parse_duration
from shpi.errors import ConfigError

Touch = Literal["last", "first", "all"]


@dataclass(frozen=True, kw_only=True)
class Events:
    """One outcome from a second table.

    Args:
        table: the file, beside the column map or anywhere; in Python also a table.
        name: name of the outcome: a metric of the log, and its reward if the map names no other.
        user: the column with the user; by default the map's.
        time: the column with the time of the event.
        value: the column to add up; by default every event counts 1.
        id: the column that identifies the decision, instead of ``user``.
        decision_id: the column of the log that ``id`` refers to; by default of the same name.
        within: time after a decision in which an event still belongs to it, e.g. ``"7d"``; by default any.
        touch: the decision to which an event belongs: the "last" or "first", or "all" in equal shares.
        late: longest delay with which events are written; so close to the end nothing is known yet.
        where: use only events with these values, e.g. ``{ type = "purchase" }``.
    """

    table: Any
    name: str
    user: str | None = None
    time: str | None = None
    value: str | None = None
    id: str | None = None
    decision_id: str | None = None
    within: str | int | float | None = None
    touch: Touch = "last"
    late: str | int | float | None = None
    where: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.touch not in get_args(Touch):
            raise ConfigError(expected=f"touch among {', '.join(get_args(Touch))}", found=repr(self.touch))
        for duration in (self.within, self.late):
            if isinstance(duration, str):
                parse_duration(duration)
        if self.id is None and self.time is None:
            raise ConfigError(
                expected="the time of events, or the id of the decisions that they belong to",
                found=f"neither 'time' nor 'id' for the events '{self.name}'",
            )

    @classmethod
    def of(cls, content: Any, folder: Path | None = None) -> Events:
        """From a mapping of the column map; a path may be relative to the map."""
        if isinstance(content, Events):
            return content
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(content) - known)
        if unknown or not {"table", "name"} <= set(content):
            raise ConfigError(
                expected=f"[[events]] with table and name, and keys among {', '.join(sorted(known))}",
                found=f"unknown {unknown}" if unknown else f"only {', '.join(content)}",
            )
        place = content["table"]
        if folder is not None and isinstance(place, str) and not Path(place).exists():
            place = str(folder / place)
        return cls(**(dict(content) | {"table": place}))

    def to_mapping(self) -> dict[str, Any]:
        """The settings that differ from the defaults, for a column map."""
        plain = asdict(self)
        return {
            item.name: plain[item.name] for item in fields(self) if plain[item.name] not in (None, {}, "last")
        }
