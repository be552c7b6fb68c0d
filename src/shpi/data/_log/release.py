"""A log as the authors' release hands it to its learners: shifted contexts, windows, differences of rewards.

    row t          (x_{t+1}, a_t, r_t): the context *after* the action is logged with it; the first is dropped
    windows        ``length`` rows every ``step``; each becomes a trajectory that stops without an ending
    differences    r_t - r_{t-1} inside a window, 0 at its first row           (the release's "backshift")

`ReleasedRows` does all three. Overlapping windows repeat rows, as in the release.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from shpi.data._log import ragged
from shpi.data._log.windows import Windows
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.protocols import Float64Array, Int64Array

RewardVariant = Literal["difference", "level"]


@dataclass(frozen=True, kw_only=True)
class ReleasedRows:
    """The release's view of a log.

    Args:
        length: length rho of a window; shorter trajectories are left out.
        step: step delta between the starts of two windows.
        rewards: "difference" of successive rewards, or "level" for the rewards as they are.
        after: log the context after the action; False keeps the context in which it was chosen.
    """

    length: int = 30
    step: int = 20
    rewards: RewardVariant = "difference"
    after: bool = True

    def __post_init__(self) -> None:
        if self.rewards not in ("difference", "level"):
            raise ConfigError(
                expected="rewards 'difference' or 'level'", found=repr(self.rewards), where="ReleasedRows"
            )

    def __call__(self, logs: LoggedData) -> LoggedData:
        """The log to learn from; the given log is not changed."""
        moved = contexts_after(logs) if self.after else logs
        cut = windowed(moved, self.length, self.step)
        return reward_differences(cut) if self.rewards == "difference" else cut


def contexts_after(logs: LoggedData) -> LoggedData:
    """Each row with the context that follows it; an unknown final context is replaced by the last one."""
    return replace(
        logs, contexts=logs.next_contexts(), final_observed=np.zeros(logs.n_trajectories, dtype=bool)
    )


def reward_differences(logs: LoggedData) -> LoggedData:
    """r_t - r_{t-1} in place of r_t, and 0 at the first row of each trajectory."""
    if logs.rewards is None:
        raise DataError(expected="a log with rewards", found="none", where="reward_differences")
    differences: Float64Array = np.diff(logs.rewards, prepend=0.0)
    differences[logs.offsets[:-1]] = 0.0
    return replace(logs, rewards=differences)


def windowed(logs: LoggedData, length: int, step: int) -> LoggedData:
    """Windows of ``length`` decisions, as separate trajectories that stop without a known ending."""
    windows = Windows.of(logs, length=length, step=step)
    starts = windows.starts[windows.full()]
    if not len(starts):
        raise DataError(
            expected=f"at least one trajectory of {length} decisions",
            found=f"at most {int(ragged.lengths(logs.offsets).max())}",
            remedy="choose shorter windows",
        )
    rows: Int64Array = (starts[:, None] + np.arange(length)).reshape(-1)
    home, offsets = logs.trajectory_of_row[starts], np.arange(0, len(rows) + 1, length)
    last = rows[length - 1 :: length]
    return replace(
        logs,
        contexts=logs.contexts[rows],
        actions=logs.actions[rows],
        rewards=None if logs.rewards is None else logs.rewards[rows],
        offsets=offsets,
        session_offsets=offsets,
        users=logs.users[home],
        times=logs.times[rows],
        terminated=np.zeros(len(starts), dtype=bool),
        final_contexts=logs.contexts[last],
        final_observed=np.zeros(len(starts), dtype=bool),
        propensities=None if logs.propensities is None else logs.propensities[rows],
        behaviour=None if logs.behaviour is None else logs.behaviour[rows],
        candidates=None if logs.candidates is None else logs.candidates[rows],
        final_candidates=None if logs.final_candidates is None else logs.final_candidates[home],
        reward_observed=None if logs.reward_observed is None else logs.reward_observed[rows],
        metrics={name: values[rows] for name, values in logs.metrics.items()},
    )
