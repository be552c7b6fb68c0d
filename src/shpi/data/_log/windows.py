"""The paper's sliding windows: X_{1:T}, X_{1+delta:T+delta}, … over each trajectory, as views."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shpi.data._log import ragged
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.protocols import BoolArray, Float32Array, Float64Array, Int64Array, IntArray


@dataclass(frozen=True, kw_only=True)
class Window:
    """``length`` consecutive decisions of one trajectory. The arrays are views of the log's."""

    trajectory: int
    start: int  # row of the first decision
    contexts: Float32Array  # [length, d]
    actions: IntArray  # [length]
    rewards: Float64Array | None  # [length]
    propensities: Float64Array | None  # [length]
    next_context: Float32Array  # [d] the context after the last decision
    next_observed: bool
    terminated: bool  # the user left after the last decision


@dataclass(frozen=True, kw_only=True)
class Windows:
    """All windows of a log as row ranges: starts[w] .. stops[w]-1. Nothing is copied.

    A trajectory of at least ``length`` decisions has floor((T - length) / step) + 1 windows; its last rows
    are in none when step does not divide T - length. A shorter trajectory is one window of its own length.
    Overlapping windows of one user are dependent: cluster intervals by user.
    """

    logs: LoggedData
    length: int
    step: int
    starts: Int64Array  # [W]
    stops: Int64Array  # [W]

    @classmethod
    def of(cls, logs: LoggedData, *, length: int, step: int) -> Windows:
        """The windows of a log."""
        for name, value in (("length", length), ("step", step)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(expected=f"{name} to be an integer of at least 1", found=repr(value))
        sizes = ragged.lengths(logs.offsets)
        counts = np.maximum((sizes - length) // step, 0) + 1
        inner = ragged.offsets_from_lengths(counts)
        starts = np.repeat(logs.offsets[:-1], counts) + step * ragged.position_in_group(inner)
        stops = np.minimum(starts + length, np.repeat(logs.offsets[1:], counts))
        return cls(logs=logs, length=length, step=step, starts=starts, stops=stops)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def trajectories(self) -> Int64Array:
        """For each window [W], its trajectory."""
        return self.logs.trajectory_of_row[self.starts]

    def __getitem__(self, index: int) -> Window:
        logs = self.logs
        if not -len(self) <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        start, stop = int(self.starts[index]), int(self.stops[index])
        home = int(logs.trajectory_of_row[start])
        at_end = stop == logs.offsets[home + 1]
        rows = slice(start, stop)
        return Window(
            trajectory=home,
            start=start,
            contexts=logs.contexts[rows],
            actions=logs.actions[rows],
            rewards=None if logs.rewards is None else logs.rewards[rows],
            propensities=None if logs.propensities is None else logs.propensities[rows],
            next_context=logs.final_contexts[home] if at_end else logs.contexts[stop],
            next_observed=bool(logs.final_observed[home]) if at_end else True,
            terminated=bool(at_end and logs.terminated[home]),
        )

    def __iter__(self) -> Iterator[Window]:
        return (self[index] for index in range(len(self)))

    def coverage(self) -> Int64Array:
        """For each decision [n], the number of windows that contain it: its weight in the windowed batch."""
        change = np.zeros(len(self.logs) + 1, dtype=np.int64)
        np.add.at(change, self.starts, 1)
        np.add.at(change, self.stops, -1)
        return np.cumsum(change[:-1])

    def full(self) -> BoolArray:
        """Whether each window [W] has the full length."""
        whole: BoolArray = self.stops - self.starts == self.length
        return whole
