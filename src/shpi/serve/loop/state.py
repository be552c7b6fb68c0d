"""How far a cycle has come: a small file that is replaced after every step, so that it can be resumed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shpi.errors import DataError
from shpi.files.atomic import write_text
from shpi.files.reading import parse_json
from shpi.files.schema import Record, check, one_of, whole

STEPS = ("compact", "audit", "fit", "evaluate", "gate", "canary")
CYCLES, FILE = "cycles", "state.json"
_SCHEMA = Record(
    {
        "number": whole(1),
        "started": whole(0, 2**62),
        "done": [one_of(*STEPS)],
        "outcome": (None, str),
        "changed": bool,
        "facts": dict,
    }
)


@dataclass(frozen=True, kw_only=True)
class CycleState:
    """One cycle. Immutable: every step makes another state."""

    number: int
    started: int  # microseconds: up to when rewards are known
    done: tuple[str, ...] = ()
    outcome: str | None = None  # one sentence, when it is over
    changed: bool = False  # a policy went on trial
    facts: dict[str, Any] | None = None

    @property
    def next_step(self) -> str:
        """What comes next."""
        return next((step for step in STEPS if step not in self.done), "nothing")

    def place(self, folder: Path) -> Path:
        """Where its files are."""
        return folder / CYCLES / f"{self.number:04d}"

    def write(self, folder: Path) -> CycleState:
        """Replace the file."""
        self.place(folder).mkdir(parents=True, exist_ok=True)
        content = {**asdict(self), "facts": self.facts or {}}
        write_text(self.place(folder) / FILE, json.dumps(content, indent=1) + "\n")
        return self

    def after(self, step: str, **facts: Any) -> CycleState:
        """A step was done."""
        return replace(self, done=(*self.done, step), facts={**(self.facts or {}), **facts})

    def over(self, outcome: str, *, changed: bool = False) -> CycleState:
        """The cycle has ended."""
        return replace(self, outcome=outcome, changed=changed)

    @classmethod
    def read(cls, path: Path) -> CycleState:
        """A state file."""
        content = parse_json(path.read_text(encoding="utf-8"), str(path))
        check(content, _SCHEMA, str(path))
        return cls(**{**content, "done": tuple(content["done"])})

    @classmethod
    def last(cls, folder: Path) -> CycleState | None:
        """The latest cycle of a service; None before the first."""
        paths = sorted((folder / CYCLES).glob(f"*/{FILE}"))
        try:
            return cls.read(paths[-1]) if paths else None
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(expected="a readable state", found=str(error), where=str(paths[-1])) from None

    def __str__(self) -> str:
        return f"cycle {self.number}: {self.outcome or 'under way, next: ' + self.next_step}"
