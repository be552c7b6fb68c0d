"""How users end: who has left, and whose record merely stops with the log.

A user who stopped coming and a user whose log was cut look alike: both have a last decision. The difference
is the effect that long-term learning is about, so a log says how its users end (`LoggedData.endings`):

    "marked"          the log tells: by a column, or because the context after every last decision is known
    "by churn_after"  a user who was silent for longer before the log ended has left
    "by window"       a metric with a window was counted: it ends for everybody when the window closes
    "unknown"         the log does not tell

With unknown endings, what the log does not show counts as 0. The value of the logging policy is then the
plain mean of the table, and no user is extrapolated to the length of the longest trajectory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from shpi.data._log.futures import keep_prefixes
from shpi.data._log.ledger import Drop
from shpi.data.durations import Duration, describe, in_time_unit
from shpi.errors import ConfigError, DataError
from shpi.protocols import BoolArray

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

Endings = Literal["marked", "by churn_after", "by window", "unknown"]
NEVER = "never"  # value of churn_after: users do not leave, the log only stops


def terminate_unknown_endings(logs: LoggedData) -> LoggedData:
    """The log with users marked as gone after their last decision, if it does not say how they end.

    Only a user's last trajectory is marked, and only if no later context of that user is known.
    """
    if logs.endings != "unknown":
        return logs
    return replace(logs, terminated=logs.terminated | (last_of_user(logs) & ~logs.final_observed))


def last_of_user(logs: LoggedData) -> BoolArray:
    """Whether a trajectory [N] is the last one of its user."""
    starts = logs.times[logs.offsets[:-1]]
    order = np.lexsort((np.arange(logs.n_trajectories), starts, logs.user_codes))
    codes = logs.user_codes[order]
    last = np.empty(logs.n_trajectories, dtype=bool)
    last[order] = np.append(codes[1:] != codes[:-1], True)
    return last


def leave_after(logs: LoggedData, churn_after: Duration, *, log_end: int | float | None = None) -> LoggedData:
    """The log with users marked as gone if they were silent for longer than ``churn_after`` before its end.

    Whether a user comes back within that time is known only for decisions that are at least that old. Later
    decisions are dropped; otherwise only the users who came back soon would be known. The context of a user's
    first dropped decision becomes the final context: such users are censored, not gone.

    Args:
        logs: a log that does not say how its users end.
        churn_after: a duration such as ``"30d"``; a number where times are plain numbers; ``"never"`` where
            users do not leave and the log only stops.
        log_end: the time up to which the log is complete; None takes its last time.
    """
    if logs.endings == "marked" and logs.terminated.any():
        raise ConfigError(
            expected="churn_after for a log that does not mark who has left",
            found="a log with terminated trajectories",
            remedy="name either 'terminated' or 'churn_after' in the column map",
        )
    if churn_after == NEVER:
        gone = np.zeros(logs.n_trajectories, dtype=bool)
        return replace(logs, terminated=gone, endings="by churn_after")
    silence = in_time_unit(churn_after, logs.time_unit)
    end = logs.times.max() if log_end is None else log_end
    kept = logs.times <= end - silence
    if not kept.any():
        span = end - logs.times.min()
        words = describe(float(span)) if logs.time_unit == "us" else f"{span:g}"
        raise DataError(
            expected=f"a log that is longer than churn_after = {churn_after!r}",
            found=f"one of {words}",
            remedy="choose a shorter churn_after, or a metric with a window, which needs none",
        )
    # Decided before rows are dropped: a user with a trajectory that is cut below has not left.
    gone = last_of_user(logs) & ~logs.final_observed & kept[logs.offsets[1:] - 1]
    left = replace(logs, terminated=gone, endings="by churn_after")
    drop = Drop(
        reason=f"less than churn_after = {churn_after} before the end of the log: not yet known who left",
        rows=int((~kept).sum()),
        column="time",
        example=int(np.flatnonzero(~kept)[0]) if not kept.all() else None,
        asked=True,
    )
    return keep_prefixes(left, kept, logs.ledger.with_drop(drop))
