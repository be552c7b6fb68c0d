"""Features of the time of a decision: its calendar time, since logging policies change, and its step.

Each of the `NODES` hats is 1 at its node, falls to 0 at its neighbours, and all of them add up to 1. Before
the first and after the last node they stay constant: a later log is assumed to continue as this one ended.
The step t of a decision enters as 1[t = 0] and log(1 + t).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shpi.protocols import Float64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

NODES = 8  # points in time between which features are interpolated linearly


@dataclass(frozen=True, kw_only=True, eq=False)
class Clock:
    """Turns the time and the step of a decision into features."""

    nodes: Float64Array  # [K] centres of the hats, in microseconds, increasing; empty without a calendar
    usual: Float64Array  # [width] the features of a decision at the end of the log, at the mean step

    @classmethod
    def of(cls, logs: LoggedData) -> Clock | None:
        """Nodes at quantiles of the times; None if there is no calendar time and every step is 0."""
        nodes = np.empty(0)
        if logs.time_unit == "us" and len(logs) >= NODES and np.ptp(logs.times) > 0:
            nodes = np.unique(np.quantile(logs.times.astype(np.float64), np.linspace(0, 1, NODES)))
        if len(nodes) < 2 and len(logs) == logs.n_trajectories:
            return None
        clock = cls(nodes=nodes if len(nodes) > 1 else np.empty(0), usual=np.empty(0))
        usual = clock.features(logs).mean(axis=0)
        if len(clock.nodes):
            usual[: len(clock.nodes)] = np.eye(len(clock.nodes))[-1]
        return cls(nodes=clock.nodes, usual=usual)

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.usual)

    def features(self, logs: LoggedData) -> Float64Array:
        """The features of every decision [n, width]."""
        moments, steps = logs.times.astype(np.float64), logs.steps
        hats = [np.interp(moments, self.nodes, hat) for hat in np.eye(len(self.nodes))]
        return np.stack([*hats, (steps == 0).astype(np.float64), np.log1p(steps)], axis=1)

    def later(self, n: int) -> Float64Array:
        """The features of n decisions that come after the log [n, width]."""
        return np.tile(self.usual, (n, 1))
