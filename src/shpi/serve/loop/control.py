"""Which policy serves whom: a small JSON file, replaced atomically, so that all readers see one state.

    {"format": "shpi-control", "version": 1, "salt": "…", "start": "apprentice", "champion": "2026-11-17-1",
     "canary": {"policy": "…", "stage": 1, "since": …, "stages": […]}, "history": [{"time": …, "what": …}]}

A policy is the name of a folder below ``policies``, or "uniform" or "apprentice". A server looks at the file
several times a second: `shpi serve rollback` is one write.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from shpi.errors import ConfigError, DataError
from shpi.files.atomic import locked, write_text
from shpi.files.reading import parse_json
from shpi.files.schema import Record, check, one_of, whole

FILE, POLICIES = "control.json", "policies"
BUILT_IN = ("uniform", "apprentice")
FORMAT, VERSION = "shpi-control", 1
_MOST_HISTORY = 1000  # entries of the history that are kept
_MOMENT = whole(0, 2**62)
_SCHEMA = Record(
    {
        "format": one_of(FORMAT),
        "version": one_of(VERSION),
        "salt": str,
        "start": str,
        "champion": str,
        "champion_since": _MOMENT,
        "canary": (
            None,
            Record({"policy": str, "stage": whole(), "since": _MOMENT, "stage_since": [_MOMENT]}),
        ),
        "history": [Record({"time": _MOMENT, "what": str, "policy": str, "why": str})],
    }
)


@dataclass(frozen=True, kw_only=True)
class Canary:
    """A new policy that serves a small share of the users, on trial."""

    policy: str
    stage: int = 0  # index of its share in canary.stages
    since: int  # its start, in microseconds since 1970
    stage_since: tuple[int, ...]  # start of each stage, likewise


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry of the history: what happened, and why."""

    time: int
    what: str  # "started", "canary", "stage", "promoted", "rolled back"
    policy: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Control:
    """The state of a service. Immutable: every change returns a new one."""

    salt: str  # hex
    start: str
    champion: str
    champion_since: int
    canary: Canary | None = None
    history: tuple[Entry, ...] = field(default=())

    @classmethod
    def new(cls, start: str, now: int | None = None) -> Control:
        """The state of a service that has not learned anything yet."""
        moment = now_us() if now is None else now
        first = Entry(time=moment, what="started", policy=start, why="nothing has been learned yet")
        return cls(
            salt=secrets.token_hex(16), start=start, champion=start, champion_since=moment, history=(first,)
        )

    @classmethod
    def read(cls, folder: Path) -> Control:
        """Read the state from a folder."""
        path = folder / FILE
        try:
            content = parse_json(path.read_text(encoding="utf-8"), str(path))
        except FileNotFoundError:
            raise ConfigError(
                expected="the folder of a service",
                found="one without control.json",
                where=str(folder),
                remedy="shpi serve FOLDER makes one",
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(expected="a file that can be read", found=str(error), where=str(path)) from None
        check(content, _SCHEMA, str(path))
        canary = content["canary"]
        if canary is not None:
            canary = Canary(**{**canary, "stage_since": tuple(canary["stage_since"])})
        plain = {name: content[name] for name in ("salt", "start", "champion", "champion_since")}
        return cls(**plain, canary=canary, history=tuple(Entry(**entry) for entry in content["history"]))

    def write(self, folder: Path) -> None:
        """Replace the file atomically."""
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        write_text(folder / FILE, json.dumps(content, indent=1) + "\n")

    # ------------------------------------------------------------------ changes

    def _noted(self, what: str, policy: str, why: str, now: int, **changes: Any) -> Control:
        entry = Entry(time=now, what=what, policy=policy, why=why)
        return replace(self, history=(*self.history, entry)[-_MOST_HISTORY:], **changes)

    def with_canary(self, policy: str, why: str, now: int) -> Control:
        """The state with a policy on trial as canary."""
        if self.canary is not None:
            raise ConfigError(
                expected="no other canary",
                found=f"'{self.canary.policy}'",
                remedy="wait until it is promoted or rolled back, or run shpi serve rollback",
            )
        return self._noted(
            "canary", policy, why, now, canary=Canary(policy=policy, since=now, stage_since=(now,))
        )

    def next_stage(self, why: str, now: int) -> Control:
        """The state with the canary at its next share of users."""
        assert self.canary is not None
        wider = replace(self.canary, stage=self.canary.stage + 1, stage_since=(*self.canary.stage_since, now))
        return self._noted("stage", wider.policy, why, now, canary=wider)

    def promoted(self, why: str, now: int) -> Control:
        """The state with the canary as champion."""
        assert self.canary is not None
        policy = self.canary.policy
        return self._noted("promoted", policy, why, now, champion=policy, champion_since=now, canary=None)

    def rolled_back(self, why: str, now: int) -> Control:
        """The state without the canary; if there is none, with the previous champion back in place."""
        if self.canary is not None:
            return self._noted("rolled back", self.canary.policy, why, now, canary=None)
        earlier = self.earlier_champion()
        if earlier is None:
            raise ConfigError(
                expected="a canary, or an earlier champion",
                found=f"only '{self.champion}'",
                remedy="there is nothing to roll back to",
            )
        return self._noted("rolled back", self.champion, why, now, champion=earlier, champion_since=now)

    def earlier_champion(self) -> str | None:
        """The previous champion."""
        line = [self.start]
        for entry in self.history:
            if entry.what == "promoted":
                line.append(entry.policy)
            elif entry.what == "rolled back" and len(line) > 1 and line[-1] == entry.policy:
                line.pop()
        return line[-2] if len(line) > 1 else None

    def policies(self) -> Iterator[str]:
        """The names of the policies in use."""
        yield from dict.fromkeys(
            [self.start, self.champion, *([self.canary.policy] if self.canary is not None else [])]
        )


@contextmanager
def changing(folder: Path) -> Iterator[Control]:
    """Lock and read the state; the block writes the changed state itself."""
    with locked(folder):
        yield Control.read(folder)


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


def policy_path(folder: Path, name: str) -> Path:
    """The path of a policy."""
    return folder / POLICIES / name
