"""What an experiment is made of: logs, cells and rows.

A *cell* is one independent piece of work: one method on one log. It is plain data, so that its configuration
has a key, a killed run can go on where it stopped, and experiments that ask for the same cell share it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FAILURE = "failure"  # the metric of a row that says what went wrong


@dataclass(frozen=True, kw_only=True)
class Log:
    """A simulated log: who wrote it, in which world, for how many users.

    Args:
        world: the name of a simulator.
        epsilon: epsilon of the logging policy; 1 is uniform, 0 the trained agent itself.
        users: n_offline.
        seed: random seed of the users and of the logging policy's chance.
        params: params of the simulator.
        variant: what rows call these parameters, e.g. "biased reward"; the world's own if empty.
    """

    world: str
    epsilon: float
    users: int
    seed: int
    params: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""

    @property
    def key(self) -> str:
        """The same for the same log."""
        return _digest({name: value for name, value in asdict(self).items() if name != "variant"})

    @property
    def label(self) -> str:
        """What the rows call the world."""
        return f"{self.world}, {self.variant}" if self.variant else self.world


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method on one log.

    Args:
        method: what the rows call it.
        log: what it learns from.
        work: the function in `shpi.experiments._run.work` that does it.
        learner: the name in the registry of learners, where the work fits one.
        options: options of the learner, or of the work.
        k: the horizon, for the rows; also an option of the learner where it has one.
        Lambda: the weight of the proximal penalty, likewise.
        test: parameters of the simulator in which the policy is tried, where they differ from the log's.
        rollouts: how many new users try it.
    """

    method: str
    log: Log
    work: str = "learn"
    learner: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    k: int | str | None = None
    Lambda: float | None = None
    test: Mapping[str, Any] = field(default_factory=dict)
    rollouts: int = 200

    @property
    def key(self) -> str:
        """The same for the same configuration, whatever an experiment calls the method."""
        fields = {name: value for name, value in asdict(self).items() if name not in ("method", "log")}
        return _digest(fields | {"log": self.log.key})

    def to_json(self) -> str:
        """One line, for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Cell:
        """What `to_json` wrote."""
        fields = json.loads(text)
        return cls(**(fields | {"log": Log(**fields["log"])}))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measured number, as it stands in a results file."""

    name: str  # of the experiment
    world: str
    method: str
    epsilon: float
    k: int | str | None
    Lambda: float | None
    seed: int
    metric: str
    value: float | None  # None for a failure
    seconds: float  # CPU seconds of the fit, or of the whole work where nothing is fitted
    users: int
    cell: str  # the key of the cell
    of: int  # how many rows the cell has
    commit: str = ""
    peak_mb: float | None = None  # the largest resident size of the process while it worked
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a cell brought: numbers by metric, or the message of a failure."""

    values: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    peak_mb: float | None = None
    message: str = ""

    def rows(self, name: str, cell: Cell, commit: str) -> list[Row]:
        """The rows of one experiment."""
        values: Mapping[str, float | None] = {FAILURE: None} if self.message else self.values
        return [
            Row(
                name=name,
                world=cell.log.label,
                method=cell.method,
                epsilon=cell.log.epsilon,
                k=cell.k,
                Lambda=cell.Lambda,
                seed=cell.log.seed,
                metric=metric,
                value=value,
                seconds=round(self.seconds, 3),
                users=cell.log.users,
                cell=cell.key,
                of=len(values),
                commit=commit,
                peak_mb=None if self.peak_mb is None else round(self.peak_mb, 1),
                message=self.message,
            )
            for metric, value in values.items()
        ]


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
