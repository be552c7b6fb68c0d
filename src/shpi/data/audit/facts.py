"""The facts of an audit: counts and distributions of a log, as plain values that go into JSON unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shpi.data.durations import describe
from shpi.protocols import Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

RARE = 20  # an action chosen less often than this has hardly been tried
LENGTH_BINS = (1, 2, 3, 6, 11, 21, 51, 101)  # lower edges of the histogram of session lengths


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Six summary statistics of a distribution."""

    mean: float
    min: float
    q10: float
    median: float
    q90: float
    max: float

    @classmethod
    def of(cls, values: NDArray[Any]) -> Spread:
        """Summarise at least one value; a quantile is always a value that occurs."""
        q = np.quantile(values, [0.1, 0.5, 0.9], method="inverted_cdf").tolist()
        return cls(
            mean=float(values.mean(dtype=np.float64)),
            min=float(values.min()),
            q10=float(q[0]),
            median=float(q[1]),
            q90=float(q[2]),
            max=float(values.max()),
        )


@dataclass(frozen=True, kw_only=True)
class Structure:
    """The sizes of a log, and the lengths and endings of its parts."""

    decisions: int
    users: int
    trajectories: int
    sessions: int
    actions: int
    dimensions: int
    decisions_per_user: Spread
    sessions_per_user: Spread
    session_length: Spread
    session_lengths: tuple[tuple[str, int], ...]  # a histogram: label, sessions
    trajectory_length: Spread
    terminated: int  # trajectories
    truncated: int
    final_observed: int  # truncated trajectories whose last context is in the log


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The time span, ties and repeated decisions."""

    unit: str
    first: str
    last: str
    span: str
    ties: int  # decisions at the same time as the one before them, of the same trajectory
    tie_example: int | None
    duplicates: int  # decisions that repeat (user, time, action)
    duplicate_example: int | None


@dataclass(frozen=True, kw_only=True)
class ActionCount:
    """How often one action was chosen."""

    action: int | str
    count: int
    share: float


@dataclass(frozen=True, kw_only=True)
class ActionFacts:
    """Which actions were chosen."""

    chosen: int
    most: tuple[ActionCount, ...]
    rare: tuple[ActionCount, ...]  # the rarest of the actions that were chosen fewer than RARE times
    rare_total: int
    never: tuple[int | str, ...]  # the first few
    never_total: int
    candidates_mean: float
    candidates_logged: bool


@dataclass(frozen=True, kw_only=True)
class RewardFacts:
    """The observed rewards."""

    spread: Spread
    deviation: float
    zeros: float  # share
    values: tuple[float, ...]  # the two values of a binary reward, or none
    observed: int
    censored: int
    by_action: tuple[tuple[int | str, float, int], ...]  # best and worst action by mean: id, mean, count


def structure(logs: LoggedData) -> Structure:
    """Sizes, lengths and endings."""
    lengths, session_lengths = np.diff(logs.offsets), np.diff(logs.session_offsets)
    users, codes = logs.n_users, logs.user_codes
    sessions_of = np.bincount(logs.trajectory_of_session, minlength=logs.n_trajectories)
    truncated = ~logs.terminated
    return Structure(
        decisions=len(logs),
        users=users,
        trajectories=logs.n_trajectories,
        sessions=logs.n_sessions,
        actions=logs.n_actions,
        dimensions=logs.schema.width,
        decisions_per_user=Spread.of(np.bincount(codes, weights=lengths, minlength=users)),
        sessions_per_user=Spread.of(np.bincount(codes, weights=sessions_of, minlength=users)),
        session_length=Spread.of(session_lengths),
        session_lengths=_histogram(session_lengths),
        trajectory_length=Spread.of(lengths),
        terminated=int(logs.terminated.sum()),
        truncated=int(truncated.sum()),
        final_observed=int((truncated & logs.final_observed).sum()),
    )


def _histogram(lengths: Int64Array) -> tuple[tuple[str, int], ...]:
    counts = np.bincount(np.searchsorted(LENGTH_BINS, lengths, side="right") - 1, minlength=len(LENGTH_BINS))
    labels = []
    for low, high in zip(LENGTH_BINS, (*LENGTH_BINS[1:], None), strict=True):
        labels.append(f"{low}+" if high is None else str(low) if high == low + 1 else f"{low}-{high - 1}")
    filled = np.flatnonzero(counts)
    shown = slice(int(filled[0]), int(filled[-1]) + 1)
    return tuple(zip(labels[shown], counts[shown].tolist(), strict=True))


def timing(logs: LoggedData) -> Timing:
    """Span, ties and repeated decisions."""
    inner = np.ones(len(logs), dtype=bool)
    inner[logs.offsets[:-1]] = False
    same = inner.copy()
    same[1:] &= logs.times[1:] == logs.times[:-1]
    repeated = _repeated(logs, same)
    first, last = logs.times.min(), logs.times.max()
    calendar = logs.time_unit == "us"
    return Timing(
        unit=logs.time_unit,
        first=_moment(int(first)) if calendar else f"{first:g}",
        last=_moment(int(last)) if calendar else f"{last:g}",
        span=describe(float(last - first)) if calendar else f"{last - first:g} steps",
        ties=int(same.sum()),
        tie_example=_first(same),
        duplicates=len(repeated),
        duplicate_example=int(repeated.min()) if len(repeated) else None,
    )


def _repeated(logs: LoggedData, same: NDArray[np.bool_]) -> Int64Array:
    """Rows with the (trajectory, time, action) of an earlier row; only ties can be such rows."""
    tied = same.copy()
    tied[:-1] |= same[1:]
    rows = np.flatnonzero(tied)
    moment = np.cumsum(~same)[rows]  # numbers each (trajectory, time)
    key = moment * logs.n_actions + logs.actions[rows]
    order = np.argsort(key, kind="stable")
    again = np.flatnonzero(np.diff(key[order]) == 0) + 1
    return rows[order[again]].astype(np.int64)


def action_facts(logs: LoggedData, counts: Int64Array | None = None) -> ActionFacts:
    """Counts per action; ``counts`` [A] are those of the whole log if ``logs`` is a sample of it."""
    if counts is None:
        counts = np.bincount(logs.actions, minlength=logs.n_actions).astype(np.int64)
    total = int(counts.sum())
    order = np.argsort(-counts, kind="stable")

    def entry(index: int) -> ActionCount:
        count = int(counts[index])
        return ActionCount(action=logs.action_space.ids[index], count=count, share=count / total)

    chosen = order[counts[order] > 0]
    rare = chosen[counts[chosen] < RARE][::-1]
    never = np.flatnonzero(counts == 0)
    sizes = logs.n_actions if logs.candidates is None else float(logs.candidates.sum() / len(logs))
    return ActionFacts(
        chosen=len(chosen),
        most=tuple(entry(int(i)) for i in chosen[:5]),
        rare=tuple(entry(int(i)) for i in rare[:5]),
        rare_total=len(rare),
        never=tuple(logs.action_space.ids[int(i)] for i in never[:5]),
        never_total=len(never),
        candidates_mean=float(sizes),
        candidates_logged=logs.candidates is not None,
    )


def reward_facts(logs: LoggedData) -> RewardFacts | None:
    """The distribution of the observed rewards, or None if there are none."""
    if logs.rewards is None:
        return None
    observed = np.ones(len(logs), bool) if logs.reward_observed is None else logs.reward_observed
    rewards = logs.rewards[observed]
    if not len(rewards):
        return None
    low, high = float(rewards.min()), float(rewards.max())
    scale = max(abs(low), abs(high)) or 1.0  # so that squares of huge rewards stay finite
    binary = low < high and bool(((rewards == low) | (rewards == high)).all())
    counts = np.bincount(logs.actions[observed], minlength=logs.n_actions)
    sums = np.bincount(logs.actions[observed], weights=rewards, minlength=logs.n_actions)
    known = np.flatnonzero(counts >= RARE)
    means = sums[known] / counts[known]
    ends = [] if len(known) < 2 else [int(known[means.argmax()]), int(known[means.argmin()])]
    return RewardFacts(
        spread=Spread.of(rewards),
        deviation=float((rewards / scale).std() * scale),
        zeros=float((rewards == 0).mean()),
        values=(low, high) if binary else (),
        observed=len(rewards),
        censored=len(logs) - len(rewards),
        by_action=tuple((logs.action_space.ids[i], float(sums[i] / counts[i]), int(counts[i])) for i in ends),
    )


def describe_row(logs: LoggedData, row: int) -> str:
    """A decision described so that a person can find it: its user, its time and its action."""
    user = logs.users[logs.trajectory_of_row[row]]
    time = _moment(int(logs.times[row])) if logs.time_unit == "us" else f"time {logs.times[row]:g}"
    return f"user {user}, {time}, action {logs.action_space.ids[logs.actions[row]]}"


def _moment(microseconds: int) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds} µs"
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _first(mask: NDArray[np.bool_]) -> int | None:
    return int(mask.argmax()) if mask.any() else None
