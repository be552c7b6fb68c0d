"""`serve.toml`: every key with a default and a comment. `Settings.read` checks it, `to_toml` writes it."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from shpi.data.durations import parse_duration
from shpi.data.question.metric import Metric
from shpi.errors import ConfigError
from shpi.files.reading import read_error

FILE = "serve.toml"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
Aggregate = Literal["sum", "earliest", "last", "max"]
Start = Literal["uniform", "apprentice"]


def key(default: Any, about: str) -> Any:
    """A key of the file, with its default and its meaning."""
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata={"about": about})
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where it listens, and how much it takes."""

    host: str = key("127.0.0.1", "the address; anything but this machine needs tokens, and a proxy for TLS")
    port: int = key(8400, "the port")
    body_bytes: int = key(1_048_576, "the longest body of a request")
    candidates: int = key(1000, "the most candidates of a request")
    ranking: int = key(10, "items in the ranking of an answer, the most likely first; 0: all")
    batch: int = key(1000, "the most entries of a batch")
    rate: float = key(0.0, "requests per second from one address, on average; 0: any number")
    timeout: float = key(
        10.0, "seconds after which a slow body, or a store that does not answer, is given up"
    )
    clock: Literal["wall", "events"] = key(
        "wall", "'events': time is that of the latest request, for replays"
    )


@dataclass(frozen=True, kw_only=True)
class TokenSettings:
    """Bearer tokens; 'env:NAME' reads one from the environment. Empty lists ask for none, on this machine."""

    decide: list[str] = key([], "may rank and activate")
    reward: list[str] = key([], "may reward")
    admin: list[str] = key([], "may do everything, see single events, and read the page")


@dataclass(frozen=True, kw_only=True)
class DecideSettings:
    """How a decision is made."""

    floor: float = key(0.05, "exploration: every candidate keeps floor/candidates of probability")
    start: Start = key("uniform", "before anything is learned: 'uniform', or 'apprentice' (first candidate)")
    hold_back: float = key(0.05, "share of users who always get the start policy, as a baseline")
    shadow: str = key("", "a policy that is scored and does not act")


@dataclass(frozen=True, kw_only=True)
class RewardSettings:
    """How rewards are joined to decisions."""

    aggregate: Aggregate = key("sum", "combines several rewards of one name: sum, earliest, last or max")
    default: float = key(0.0, "the reward of a decision without one")
    wait: str = key("1h", "how long rewards may take; younger decisions are left out and estimated by V_mu")


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """The log that is made of the events."""

    session_gap: str = key("30m", "a longer pause starts a new session, where callers name no session")
    metric: str = key(
        "", "what a user is worth, such as 'reward in 7d'; empty: the rewards as far as they go"
    )
    compact_every: str = key("1h", "how often events are compacted into log.parquet")


@dataclass(frozen=True, kw_only=True)
class CycleSettings:
    """Learning again."""

    every: str = key("", "how often, e.g. '24h'; empty: only by `shpi serve cycle`")
    learner: str = key("shpi", "the learner (shpi fit --list)")
    options: dict[str, Any] = key({}, "options of the learner")
    held_out: float = key(0.5, "share of users held out for evaluation")
    min_users: int = key(200, "with fewer users a cycle waits")
    confidence: float = key(0.95, "confidence of the gate")
    min_lift: float = key(0.0, "the lift that the gate asks for")
    seed: int = key(0, "random seed")


@dataclass(frozen=True, kw_only=True)
class CanarySettings:
    """A new policy in small shares of the traffic."""

    stages: list[float] = key([0.01, 0.05, 0.20], "shares of users, one after the other")
    users: int = key(200, "users with known rewards, in each arm, before a stage is over")
    window: str = key("", "how long a user counts after entering; empty: as long as in log.metric, or a day")
    alpha: float = key(0.05, "the chance of a false roll-back, over all looks together")
    look_every: str = key("60s", "how often the arms are compared")
    longest: str = key("14d", "a canary that has not passed by then is rolled back")
    error_rate: float = key(0.02, "share of failed decisions of the canary's above which it is rolled back")
    latency_ms: float = key(50.0, "mean milliseconds of a decision above which it is rolled back")
    weight: float = key(0.25, "how far the mean importance weight may be from 1")


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """Where events are kept."""

    kind: Literal["files", "postgres"] = key(
        "files", "'files' in this folder, or 'postgres' for several workers"
    )
    url: str = key("", "of Postgres, e.g. 'postgresql://shpi@localhost/shpi', or 'env:NAME'")
    segment_mb: int = key(64, "size of a file of events")
    retention: str = key("", "events older than this, e.g. '400d', are removed every hour; empty: kept")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that `serve.toml` can say."""

    server: ServerSettings = field(default_factory=ServerSettings)
    tokens: TokenSettings = field(default_factory=TokenSettings)
    decide: DecideSettings = field(default_factory=DecideSettings)
    rewards: RewardSettings = field(default_factory=RewardSettings)
    log: LogSettings = field(default_factory=LogSettings)
    cycle: CycleSettings = field(default_factory=CycleSettings)
    canary: CanarySettings = field(default_factory=CanarySettings)
    store: StoreSettings = field(default_factory=StoreSettings)

    def __post_init__(self) -> None:
        decide, canary, cycle = self.decide, self.canary, self.cycle
        for name in ("rewards.wait", "log.session_gap", "log.compact_every"):
            parse_duration(self.value(name))
        for name in (
            "canary.look_every",
            "canary.longest",
            "canary.window",
            "cycle.every",
            "store.retention",
        ):
            if self.value(name):
                parse_duration(self.value(name))
        stages = canary.stages
        checks = (
            (0 <= decide.floor <= 1, "decide.floor in [0, 1]", decide.floor),
            (0 <= decide.hold_back < 0.5, "decide.hold_back in [0, 0.5)", decide.hold_back),
            (bool(stages) and stages == sorted(stages) and stages[0] > 0
             and stages[-1] + decide.hold_back < 1,
             "canary.stages that rise, with room for the hold-back", stages),
            (0 < canary.alpha < 0.5, "canary.alpha in (0, 0.5)", canary.alpha),
            (0.1 <= cycle.held_out <= 0.9, "cycle.held_out in [0.1, 0.9]", cycle.held_out),
            (0.5 <= cycle.confidence < 1, "cycle.confidence in [0.5, 1)", cycle.confidence),
            (self.server.host in LOOPBACK or bool(self.tokens.decide and self.tokens.reward),
             f"tokens for decide and reward where the host is not {LOOPBACK[0]}", self.server.host),
            (self.store.kind == "files" or bool(self.store.url), "store.url for Postgres", self.store.url),
        )  # fmt: skip
        for fine, expected, value in checks:
            if not fine:
                raise ConfigError(expected=expected, found=repr(value), where=FILE)

    def value(self, name: str) -> Any:
        """The value of a key such as ``log.metric``."""
        section, _, entry = name.partition(".")
        return getattr(getattr(self, section), entry)

    @property
    def canary_window(self) -> int:
        """Length of a user's window in a comparison of arms, in microseconds: the same window as the gate's.

        A policy that trades clicks today for visits tomorrow looks worse in a shorter window.
        """
        if self.canary.window:
            return parse_duration(self.canary.window)
        window = Metric.parse(self.log.metric).window if self.log.metric else None
        return parse_duration("1d" if window is None else str(window))

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """The settings of a folder; the defaults where it has no file."""
        path = folder / FILE
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise read_error(error, path) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(expected="valid TOML", found=str(error), where=str(path)) from None
        return cls.of(content, str(path))

    @classmethod
    def of(cls, content: dict[str, Any], where: str = FILE) -> Settings:
        """Settings from a dict; an unknown key or a value of the wrong type is an error that names it."""
        kinds = {item.name: item.default_factory for item in fields(cls)}
        _known(content, list(kinds), "", where)
        sections: dict[str, Any] = {}
        for name, values in content.items():
            if not isinstance(values, dict):
                raise ConfigError(expected=f"a table [{name}]", found=repr(values)[:80], where=where)
            kind: Any = kinds[name]
            hints = get_type_hints(kind)
            _known(values, [item.name for item in fields(kind)], f"{name}.", where)
            for entry, value in values.items():
                _check(f"{name}.{entry}", value, hints[entry], where)
            sections[name] = kind(**{k: float(v) if hints[k] is float else v for k, v in values.items()})
        return cls(**sections)

    def to_toml(self) -> str:
        """The text of serve.toml: every key with a comment, and default values commented out."""
        lines = ["# The settings of `shpi serve`. What is commented out is the default."]
        for section in fields(self):
            values = getattr(self, section.name)
            lines += ["", f"[{section.name}]  # {(type(values).__doc__ or '').rstrip('.')}"]
            for item in fields(values):
                value = getattr(values, item.name)
                mark = "# " if value == _default(item) else ""
                lines.append(f"{mark}{item.name} = {_toml(value)}  # {item.metadata['about']}")
        return "\n".join(lines) + "\n"


def _default(item: Field[Any]) -> Any:
    factory: Any = item.default_factory
    return item.default if item.default is not MISSING else factory()


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + " }"
            if value
            else "{}"
        )
    return json.dumps(value)


def _known(content: dict[str, Any], names: list[str], before: str, where: str) -> None:
    unknown = [name for name in content if name not in names]
    if unknown:
        raise ConfigError(
            expected=f"keys among {', '.join(before + name for name in names)}",
            found=f"'{before}{unknown[0]}'",
            where=where,
        )


def _check(name: str, value: Any, hint: Any, where: str) -> None:
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    kind = get_origin(hint) or hint
    if choices:
        good, wanted = value in choices, f"one of {', '.join(map(repr, choices))}"
    elif kind is float:
        good, wanted = isinstance(value, int | float) and not isinstance(value, bool), "a number"
    elif kind is int:
        good, wanted = (
            isinstance(value, int) and not isinstance(value, bool) and value > 0,
            "a number above 0",
        )
        good = good or (value == 0 and name.endswith(("seed", "ranking")) and not isinstance(value, bool))
    elif kind is list:
        inner = get_args(hint)[0]
        good = isinstance(value, list) and all(
            isinstance(item, (int, float) if inner is float else inner) for item in value
        )
        wanted = "a list of numbers" if inner is float else "a list of texts"
    else:
        good, wanted = isinstance(value, kind), "a table" if kind is dict else "a text"
    if not good:
        raise ConfigError(expected=f"{name} to be {wanted}", found=repr(value)[:80], where=where)


def secret(value: str) -> str:
    """A value of the file; 'env:NAME' is read from the environment."""
    if not value.startswith("env:"):
        return value
    token = os.environ.get(value[4:])
    if not token:
        raise ConfigError(expected=f"the variable {value[4:]} in the environment", found="none", where=FILE)
    return token
