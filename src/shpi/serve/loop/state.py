"""The progress of a cycle: a small file that is replaced after every step, so that the cycle can resume."""

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
    """The progress of one cycle. Immutable: every step returns a new state."""

    number: int
    started: int  # microseconds since 1970; rewards are known up to then
    done: tuple[str, ...] = ()
    outcome: str | None = None  # one sentence; None while the cycle runs
    changed: bool = False  # whether a policy went on trial
    facts: dict[str, Any] | None = None

    @property
    def next_step(self) -> str:
        """The next step, or "nothing"."""
        return next((step for step in STEPS if step not in self.done), "nothing")

    def place(self, folder: Path) -> Path:
        """The folder of the cycle's files."""
        return folder / CYCLES / f"{self.number:04d}"

    def write(self, folder: Path) -> CycleState:
        """Replace the state file."""
        self.place(folder).mkdir(parents=True, exist_ok=True)
        content = {**asdict(self), "facts": self.facts or {}}
        write_text(self.place(folder) / FILE, json.dumps(content, indent=1) + "\n")
        return self

    def after(self, step: str, **facts: Any) -> CycleState:
        """The state after a step, with the facts it found."""
        return replace(self, done=(*self.done, step), facts={**(self.facts or {}), **facts})

    def over(self, outcome: str, *, changed: bool = False) -> CycleState:
        """The state at the end of the cycle."""
        return replace(self, outcome=outcome, changed=changed)

    @classmethod
    def read(cls, path: Path) -> CycleState:
        """Read a state file."""
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
