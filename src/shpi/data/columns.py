"""`Columns`: which column of a table means what. Written in Python or in a TOML file, with the same names."""

from __future__ import annotations

import fnmatch
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from shpi.data.durations import parse_duration
from shpi.data.question.metric import Metric
from shpi.data.schema import Level, MissingPolicy
from shpi.data.tables.events import Events
from shpi.errors import ColumnError, ConfigError
from shpi.files.reading import read_error

TimeColumnUnit = Literal["auto", "d", "s", "ms", "us", "ns", "step"]
Names = tuple[str, ...]
MOST_CATEGORIES = 1_000_000  # upper limit of max_categories

_LISTS = ("context", "categorical", "user_level", "action_level", "metrics", "identity")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The column map. Names in lists may be globs: ``context=["tenure", "hist_*"]``.

    ``user=None`` makes every row its own user (a bandit log). ``time=None`` keeps the rows in source order.
    ``candidates`` and ``behaviour`` are either one list column or a glob over one column per action, whose
    ``*`` part is the action's id: ``candidates="can_*"`` reads ``can_shoes`` as action ``shoes``.
    """

    action: str
    user: str | None = None
    time: str | None = None
    time_unit: TimeColumnUnit = "auto"  # of a numeric time column; "step" has no calendar
    order: str | None = None  # breaks ties in time
    session: str | None = None
    session_gap: str | None = None  # e.g. "30m", where there is no session column
    context: Names = ()
    categorical: Names = ()  # numeric codes that are really categories
    user_level: Names = ()  # the paper's x_u
    action_level: Names = ()  # the paper's x_a; everything else is x_s
    missing: Mapping[str, MissingPolicy] = field(default_factory=dict)  # glob -> policy; default "error"
    max_categories: int = 64  # the most frequent categories of a column; the rest is "<other>"
    reward: str | None = None
    metrics: Names = ()  # further numeric outcomes to keep, e.g. guard metrics
    propensity: str | None = None
    behaviour: str | None = None  # mu(.|x): a list column in the order of action ids, or a glob
    candidates: str | None = None
    terminated: str | None = None
    truncated: str | None = None
    churn_after: str | int | float | None = None  # users silent for longer have left; "never": nobody leaves
    metric: Metric | str | Mapping[str, Any] | None = None  # the value of a user, e.g. "purchases in 30d"
    action_features: str | None = None  # a table with one row per action, read beside the log
    events: tuple[Any, ...] = ()  # outcomes from other tables, see `shpi.data.tables.events.Events`
    identity: Names = ()  # columns that make a decision unique; default (user, time, order, action)

    def __post_init__(self) -> None:
        self._check_types()
        for name in _LISTS:
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        if self.time_unit not in get_args(TimeColumnUnit):
            raise ConfigError(
                expected=f"time_unit to be one of {', '.join(get_args(TimeColumnUnit))}",
                found=repr(self.time_unit),
            )
        if self.session is not None and self.session_gap is not None:
            raise ConfigError(
                expected="sessions from a column or from a time gap",
                found=f"both session='{self.session}' and session_gap='{self.session_gap}'",
                remedy="remove one of the two",
            )
        wrong = {
            glob: policy for glob, policy in self.missing.items() if policy not in get_args(MissingPolicy)
        }
        if wrong:
            raise ConfigError(
                expected=f"missing-value policies among {', '.join(get_args(MissingPolicy))}",
                found=str(wrong),
            )
        object.__setattr__(self, "events", tuple(Events.of(event) for event in self.events))
        if self.metric is not None:
            object.__setattr__(self, "metric", Metric.of(self.metric))
        if isinstance(self.churn_after, str) and self.churn_after != "never":
            parse_duration(self.churn_after)
        if self.churn_after is not None and self.terminated is not None:
            raise ConfigError(
                expected="users who leave by a column or by their silence",
                found=f"both terminated='{self.terminated}' and churn_after='{self.churn_after}'",
                remedy="remove one of the two",
            )
        if not 1 <= self.max_categories <= MOST_CATEGORIES:
            raise ConfigError(
                expected=f"max_categories of at least 1 and at most {MOST_CATEGORIES:,}",
                found=str(self.max_categories),
            )

    def _check_types(self) -> None:
        """Check that names are text and lists are lists of names; the error says which key is wrong."""
        for item in fields(self):
            value, kind = getattr(self, item.name), str(item.type)
            if kind == "Names":
                good = isinstance(value, str) or (
                    isinstance(value, Sequence) and all(isinstance(name, str) for name in value)
                )
                wanted = "a list of column names"
            elif kind in ("str", "str | None"):
                good = isinstance(value, str) or (value is None and kind != "str")
                wanted = "a text"
            elif item.name == "missing":
                good = isinstance(value, Mapping) and all(
                    isinstance(name, str) and isinstance(policy, str) for name, policy in value.items()
                )
                wanted = "a table of column names and policies"
            elif item.name == "max_categories":
                good, wanted = type(value) is int, "a whole number"
            elif item.name == "events":
                good = isinstance(value, Sequence) and not isinstance(value, str)
                wanted = "a list of tables"
            else:
                continue
            if not good:
                raise ConfigError(expected=f"{item.name} to be {wanted}", found=repr(value)[:80])

    # ------------------------------------------------------------------ files

    @classmethod
    def from_toml(cls, path: str | Path) -> Columns:
        """Read a map such as ``user = "uid"`` … from a TOML file (optionally under ``[columns]``)."""
        place = Path(path)
        try:
            content = tomllib.loads(place.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(
                expected="a TOML file with the column map", found="no such file", where=str(place)
            ) from None
        except OSError as error:
            raise read_error(error, place) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(expected="valid TOML", found=str(error), where=str(place)) from None
        return cls.from_mapping(content.get("columns", content), where=str(place), folder=place.parent)

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any], where: str = "", folder: Path | None = None) -> Columns:
        """Build from plain values; an unknown or missing key is an error that names it."""
        if not isinstance(content, Mapping):
            raise ConfigError(expected="a table of keys", found=repr(content)[:80], where=where)
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(content) - known)
        if unknown:
            raise ConfigError(
                expected=f"keys among {', '.join(sorted(known))}", found=f"unknown {unknown}", where=where
            )
        if "action" not in content:
            raise ConfigError(expected="the key 'action'", found="a map without it", where=where)
        listed = content.get("events", ())
        if not isinstance(listed, Sequence) or isinstance(listed, str):
            raise ConfigError(expected="events to be a list of tables", found=repr(listed)[:80], where=where)
        values = dict(content) | {"events": tuple(Events.of(table, folder) for table in listed)}
        beside = content.get("action_features")
        if folder is not None and isinstance(beside, str) and not Path(beside).exists():
            values["action_features"] = str(folder / beside)  # relative to the map
        return cls(**values)

    def to_toml(self) -> str:
        """The map as TOML text; only what differs from the defaults."""
        lines = []
        tables = []
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "events":
                tables += [line for events in value for line in ("[[events]]", *_pairs(events.to_mapping()))]
            elif isinstance(value, Metric):
                lines.append(f"metric = {{ {', '.join(_pairs(value.to_mapping()))} }}")
            elif isinstance(value, Mapping):
                if value:
                    tables += [
                        f"[{item.name}]",
                        *(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in value.items()),
                    ]
            elif value is not None and value != item.default:
                lines.append(
                    f"{item.name} = {json.dumps(list(value) if isinstance(value, tuple) else value)}"
                )
        return "\n".join([*lines, *tables]) + "\n"

    # ------------------------------------------------------------------ resolution against a table

    def single(self) -> dict[str, str]:
        """The roles that are one column each, e.g. ``{"user": "uid", "action": "item"}``."""
        roles = (
            "user",
            "time",
            "order",
            "session",
            "action",
            "reward",
            "propensity",
            "terminated",
            "truncated",
        )
        chosen = {role: getattr(self, role) for role in roles}
        return {role: name for role, name in chosen.items() if name is not None}

    def check_present(self, available: Sequence[str]) -> None:
        """Every named column must exist; the error suggests close names."""
        named = [*self.single().items(), *(("metrics", name) for name in self.metrics if not is_glob(name))]
        named += [("identity", name) for name in self.identity]
        for role, name in named:
            if name not in available:
                raise missing_column(role, name, available)

    def context_columns(self, available: Sequence[str]) -> list[str]:
        """The context columns in order. A glob never takes a column that has another role."""
        taken = set(self.single().values()) | set(self.metrics)
        for pattern in (self.candidates, self.behaviour):
            if pattern is not None:
                taken |= set(fnmatch.filter(available, pattern))
        return expand("context", self.context, available, taken)

    def level_of(self, column: str) -> Level:
        """Whether a context column belongs to the session, the user or the action."""
        if matches(column, self.user_level):
            return "user"
        return "action" if matches(column, self.action_level) else "session"

    def missing_policy(self, column: str) -> MissingPolicy:
        """The policy for missing values of a context column; an exact name wins over a glob."""
        if column in self.missing:
            return self.missing[column]
        for glob, policy in self.missing.items():
            if fnmatch.fnmatchcase(column, glob):
                return policy
        return "error"


def _pairs(content: Mapping[str, Any]) -> list[str]:
    """Keys and values as TOML writes them."""
    return [
        f"{key} = {{ {', '.join(_pairs(value))} }}"
        if isinstance(value, Mapping)
        else f"{key} = {json.dumps(value, default=str)}"
        for key, value in content.items()
    ]


def is_glob(name: str) -> bool:
    """Whether a name has wildcards."""
    return any(sign in name for sign in "*?[")


def matches(column: str, patterns: Iterable[str]) -> bool:
    """Whether a column is named or matched by one of the patterns."""
    return any(column == pattern or fnmatch.fnmatchcase(column, pattern) for pattern in patterns)


def expand(role: str, patterns: Sequence[str], available: Sequence[str], taken: set[str]) -> list[str]:
    """The columns that patterns name, in the order of the patterns and then of the table."""
    names: dict[str, None] = {}
    for pattern in patterns:
        if pattern in available:
            names[pattern] = None
            continue
        hits = [name for name in available if fnmatch.fnmatchcase(name, pattern) and name not in taken]
        if not hits:
            raise missing_column(role, pattern, available)
        names.update(dict.fromkeys(hits))
    return list(names)


def missing_column(role: str, name: str, available: Sequence[str]) -> ColumnError:
    """The error for a column that is not in the table, with the closest names that are."""
    close = close_names(name, available)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else ""
    shown = ", ".join(available[:12]) + (", …" if len(available) > 12 else "")
    return ColumnError(
        expected=f"a column '{name}' for {role}",
        found=f"a table with the columns {shown}",
        where=f"{role} = '{name}'",
        remedy=f"{hint} Correct the column map".strip(),
    )


def close_names(name: str, available: Sequence[str]) -> list[str]:
    """The columns spelt like a name up to capitals, blanks and underscores; else similar ones."""
    import difflib

    plain: dict[str, str] = {}
    for column in available:
        plain.setdefault(_plain(column), column)
    same = plain.get(_plain(name))
    if same is not None:
        return [same]
    return [plain[key] for key in difflib.get_close_matches(_plain(name), list(plain), n=3, cutoff=0.6)]


def _plain(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())
