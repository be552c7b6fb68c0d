"""The parts of an experiment: logs, cells and rows.

A *cell* is one independent piece of work: one method on one log. It is plain data, so that its configuration
has a key, a killed run can resume where it stopped, and experiments that need the same cell share it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FAILURE = "failure"  # metric of a row that records an error


@dataclass(frozen=True, kw_only=True)
class Log:
    """The configuration of a simulated log: its simulator, logging policy and number of users.

    Args:
        world: name of the simulator.
        epsilon: epsilon of the logging policy; 1 is uniform, 0 the trained agent itself.
        users: number of users, the paper's n_offline.
        seed: random seed of the users and of the logging policy's draws.
        params: parameters of the simulator.
        variant: name of these parameters in rows, e.g. "biased reward"; empty for the defaults.
    """

    world: str
    epsilon: float
    users: int
    seed: int
    params: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""

    @property
    def key(self) -> str:
        """A digest of the configuration, without the variant."""
        return _digest({name: value for name, value in asdict(self).items() if name != "variant"})

    @property
    def label(self) -> str:
        """The name of the world in rows."""
        return f"{self.world}, {self.variant}" if self.variant else self.world


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method on one log.

    Args:
        method: name of the method in rows.
        log: the log that it learns from.
        work: name of the function that does the work, see `shpi.experiments._run.work`.
        learner: name in the registry of learners, if the work fits one.
        options: options of the learner, or of the work.
        k: horizon k, for the rows, and for the learner if it has this option.
        Lambda: weight of the proximal penalty, likewise.
        test: parameters of the simulator that tests the policy, where they differ from the log's.
        rollouts: number of new users on whom the policy is tested.
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
        """A digest of the configuration, without the name of the method."""
        fields = {name: value for name, value in asdict(self).items() if name not in ("method", "log")}
        return _digest(fields | {"log": self.log.key})

    def to_json(self) -> str:
        """The cell as one line of JSON, for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Cell:
        """The cell that `to_json` wrote."""
        fields = json.loads(text)
        return cls(**(fields | {"log": Log(**fields["log"])}))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measured number, as in a results file."""

    name: str  # name of the experiment
    world: str
    method: str
    epsilon: float
    k: int | str | None
    Lambda: float | None
    seed: int
    metric: str
    value: float | None  # None for a failure
    seconds: float  # CPU seconds of the fit, or of the whole work if nothing is fitted
    users: int
    cell: str  # key of the cell
    of: int  # number of rows of the cell
    commit: str = ""
    peak_mb: float | None = None  # peak resident memory of the process
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a cell: numbers by metric, or an error message."""

    values: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    peak_mb: float | None = None
    message: str = ""

    def rows(self, name: str, cell: Cell, commit: str) -> list[Row]:
        """The outcome as rows of an experiment."""
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
