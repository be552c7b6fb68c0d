"""Session ends and returns in a log, as far as the log shows them (censoring).

A session *ends* at its last decision. It is followed by a *return* if the same user's next session starts
within some time; a user who does not return within the last of the ``edges`` counts as gone. Time after a
session is cut into bins (0, e_1], (e_1, e_2], …, (e_{B-1}, e_B], and the return is described by its hazards

    h_b(x) = P(returns in bin b | did not return before, x),    P(returns) = 1 - prod_b (1 - h_b)

What happened after the last session of a truncated trajectory is known only as far as the user was observed:
until the last moment of the log (``observed="log"``), or until the last decision (``observed="user"``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from shpi.data.durations import Duration, in_time_unit
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.protocols import Float64Array, Int64Array

Observed = Literal["log", "user"]
DEFAULT_BINS = ("1d", "3d", "7d")  # for logs with timestamps


@dataclass(frozen=True, kw_only=True, eq=False)
class Ends:
    """Whether a session ended at a decision, where that is known."""

    rows: Int64Array  # [m] decisions
    ended: Float64Array  # [m] 0 or 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Returns:
    """The returns after session ends, as far as they were observed."""

    rows: Int64Array  # [m] the last decision of each session
    starts: Int64Array  # [m] its first decision
    bin: Int64Array  # [m] 1 .. B, the bin of the return; 0 if none was seen
    followed: Int64Array  # [m] 1 .. B, the number of bins in which the user was observed
    edges: Float64Array  # [B]

    def within(self, bins: int) -> tuple[Int64Array, Float64Array]:
        """The sessions (positions) that were observed for that many bins, and whether the user returned."""
        known = np.flatnonzero(self.followed >= bins)
        back = (self.bin[known] > 0) & (self.bin[known] <= bins)
        return known, back.astype(np.float64)

    def at_risk(self) -> tuple[Int64Array, Int64Array, Float64Array]:
        """Bins 2 .. B pooled: (session, bin, whether the user returned in it), if not back before."""
        parts = []
        for b in range(2, len(self.edges) + 1):
            known = np.flatnonzero((self.followed >= b) & ((self.bin == 0) | (self.bin >= b)))
            back = (self.bin[known] == b).astype(np.float64)
            parts.append((known, np.full(len(known), b, dtype=np.int64), back))
        if not parts:
            nothing = np.empty(0, dtype=np.int64)
            return nothing, nothing, np.empty(0)
        return (
            np.concatenate([arrays[0] for arrays in parts]),
            np.concatenate([arrays[1] for arrays in parts]),
            np.concatenate([arrays[2] for arrays in parts]),
        )


def return_edges(logs: LoggedData, bins: Sequence[Duration] | None) -> Float64Array:
    """The edges of the bins [B] in the unit of the log's times; one endless bin if there are no times."""
    if bins is None:
        if logs.time_unit == "step":
            return np.array([np.inf])
        bins = DEFAULT_BINS
    edges = np.array([float(in_time_unit(value, logs.time_unit)) for value in bins])
    if not len(edges) or (np.diff(edges) <= 0).any() or edges[0] <= 0:
        raise ConfigError(expected="return_bins that rise from above 0", found=str(tuple(bins)))
    return edges


def observed_until(logs: LoggedData, observed: Observed | None, edges: Float64Array) -> Observed:
    """How far users are observed: as given, or by default "log" for timestamps, else "user"."""
    chosen: Observed = ("log" if logs.time_unit == "us" else "user") if observed is None else observed
    if chosen not in get_args(Observed):
        raise ConfigError(expected="observed to be 'log' or 'user'", found=repr(observed))
    if chosen == "log" and not np.isfinite(edges[-1]):
        raise ConfigError(
            expected="return_bins together with observed='log'",
            found="none, and times that are plain numbers",
            remedy="say within what time a return counts, in the unit of the log's times",
        )
    return chosen


def session_outcomes(logs: LoggedData, edges: Float64Array, observed: Observed) -> tuple[Ends, Returns]:
    """Session ends and returns of a log."""
    times = logs.times.astype(np.float64)
    starts, last = logs.session_offsets[:-1], logs.session_offsets[1:] - 1
    owner = logs.trajectory_of_session
    final = np.append(owner[1:] != owner[:-1], True)  # whether a session is the last of its trajectory
    gone = final & logs.terminated[owner]
    cut = final & ~gone
    until = float(times.max()) - times[last] if observed == "log" else np.where(cut, -np.inf, np.inf)
    pause = _longest_pause(logs, times)
    known_end = ~cut | (until >= pause)
    followed = (until[:, None] >= edges).sum(axis=1)  # [S]
    followed[gone] = len(edges)
    gap = np.full(len(starts), np.inf)
    gap[:-1][~final[:-1]] = (times[starts[1:]] - times[last[:-1]])[~final[:-1]]
    which = np.searchsorted(edges, gap) + 1
    # Without an end of time, a return counts in the only bin; after "gone" there is none.
    which[(which > followed) | final] = 0
    use = (followed > 0) & known_end
    ended = np.zeros(len(logs))
    ended[last] = 1.0
    known = np.ones(len(logs), dtype=bool)
    known[last[~known_end]] = False
    rows = np.flatnonzero(known)
    return (
        Ends(rows=rows, ended=ended[rows]),
        Returns(rows=last[use], starts=starts[use], bin=which[use], followed=followed[use], edges=edges),
    )


def _longest_pause(logs: LoggedData, times: Float64Array) -> float:
    """The longest pause inside a session: after a longer one, the session has ended."""
    pause = np.diff(times)
    inside = logs.session_of_row[1:] == logs.session_of_row[:-1]
    return float(pause[inside].max(initial=0.0))


def return_kind(logs: LoggedData, edges: Float64Array) -> tuple[Int64Array, Int64Array, Float64Array]:
    """Transitions between decisions: rows that have a next one, the kind of the step, and its duration.

    Kind 0 stays in the session; kind b = 1 .. B returns in bin b. Returns after the last edge are left out.
    """
    times = logs.times.astype(np.float64)
    follows = np.ones(len(logs), dtype=bool)
    follows[logs.offsets[1:] - 1] = False
    rows = np.flatnonzero(follows)
    gap = times[rows + 1] - times[rows]
    same = logs.session_of_row[rows] == logs.session_of_row[rows + 1]
    kind = np.where(same, 0, np.searchsorted(edges, gap) + 1)
    use = kind <= len(edges)
    return rows[use], kind[use], gap[use]
