"""Long-term rewards derived from a log: return within 7 days, sessions in 14 days, conversions per month.

A derived reward looks into the future of a decision, inside its trajectory. Let t be the time of the
decision, e the time of the last decision of its session, h the horizon:

    ReturnWithin     1 if another session of the user starts by e + h, else 0; paid once, at the session's end
    SessionsWithin   the number of later sessions that start by e + h
    SumWithin        sum of m_j over this and later decisions j with t_j < t + h
    DiscountedSum    sum of gamma^{steps or time from t to j} m_j over this and later decisions j

Censoring. The log is known up to ``log_end``: by default its last time, for everybody. A decision whose
window reaches beyond it has a reward that has not matured: it is *unknown*, not zero. ``censored`` says
what happens to such decisions:

    "drop"         They are dropped from the ends of the trajectories and recorded in the ledger. The context
                   of the first of them becomes the final context, from which V is bootstrapped.
    "mark"         They stay with what was seen so far, and ``reward_observed`` is False: a learner may use
                   their contexts, but not their rewards. V is bootstrapped at the first of them, as above.
    a completion   `shpi.Complete()`: what was seen, plus what is expected of the rest.

The window must be complete for successes too. A return seen before the log's end is certain, but keeping it
while dropping its neighbours without a return would leave only successes near the end of the log. The same
holds for users who *terminated*: their future is known to be empty, but near the end they would be the only
ones left. Whether a decision is kept therefore depends on its time alone, never on its outcome. Decisions of
terminated users are kept only if no other decision would be dropped; a completion uses them as they are.

If the times are mere decision counters (0, 1, 2, … in every trajectory), there is no common clock. If all
trajectories that did not terminate have the same length, the log ends there for everybody. Otherwise each is
known up to its own last decision, and terminated ones in full: it is unknown when their logs would have
ended otherwise. Then "drop" and "mark" keep too many terminated users; a completion does not.

A derived reward is known only when its window has closed. The metric of a decision is known at once and kept
as ``LoggedData.immediate``, for features of a decision's past: earlier derived rewards reveal its outcome.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from shpi.data._log.futures import first_after, keep_prefixes, window_sums
from shpi.data._log.ledger import Drop
from shpi.data.durations import Duration, in_time_unit
from shpi.errors import ConfigError, DataError
from shpi.protocols import BoolArray, Float64Array, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

Censored = Literal["drop", "mark"]  # or a `Completion`
LogEnd = int | float | str | datetime


@dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """A log's times as int64 or float64, and the time [n] up to which each decision's future is known."""

    logs: LoggedData
    times: NDArray[Any]  # [n]
    known_until: NDArray[Any]  # [n] later times are ignored
    counted: bool = False  # times count decisions
    common: bool = True  # the log ends at the same time for everybody

    def horizon(self, value: Duration) -> int | float:
        """A duration in the unit of the times."""
        return in_time_unit(value, self.logs.time_unit)

    @property
    def terminated(self) -> BoolArray:
        """For each decision [n], whether its user terminated, so that nothing follows the last row."""
        return np.repeat(self.logs.terminated, np.diff(self.logs.offsets))

    def in_steps(self) -> Timeline:
        """The same log with the step of each decision as its time."""
        known, common = _counted_until(self.logs)
        return replace(self, times=self.logs.steps, known_until=known, counted=True, common=common)

    @property
    def session_ends(self) -> NDArray[Any]:
        """For each session [S], the time of its last decision."""
        ends: NDArray[Any] = self.times[self.logs.session_offsets[1:] - 1]
        return ends

    def metric(self, name: str) -> Float64Array:
        """A metric column, or the log's own reward under the name "reward"."""
        logs = self.logs
        if name in logs.metrics:
            return logs.metrics[name]
        if name == "reward" and logs.rewards is not None:
            if logs.reward_observed is not None and not logs.reward_observed.all():
                raise DataError(
                    expected="a reward that was observed for every decision",
                    found=f"{int((~logs.reward_observed).sum())} censored ones",
                    remedy="derive from the original log, or drop the censored decisions first",
                )
            return logs.rewards
        known = [*sorted(logs.metrics), *([] if logs.rewards is None else ["reward"])]
        raise ConfigError(
            expected=f"a metric of the log: {', '.join(known) or 'it has none'}",
            found=repr(name),
            remedy="name the column under 'metrics' in the column map",
        )


@runtime_checkable
class RewardDefinition(Protocol):
    """How a reward is computed from a decision's future."""

    def look_ahead(self, timeline: Timeline) -> tuple[Float64Array, BoolArray]:
        """The rewards [n] as far as seen, and whether each window [n] had closed when the log ended."""
        ...


@runtime_checkable
class Completion(Protocol):
    """How rewards whose windows are still open are completed; see `shpi.values.mature`."""

    def complete(
        self, timeline: Timeline, definition: RewardDefinition, rewards: Float64Array, open_: BoolArray
    ) -> Float64Array:
        """The rewards [n]; those of ``open_`` windows [n] include what is expected of the rest."""
        ...


@dataclass(frozen=True, kw_only=True)
class SessionsWithin:
    """The number of later sessions of the user that start within ``horizon`` of this session's end."""

    horizon: Duration = "14d"

    def look_ahead(self, timeline: Timeline) -> tuple[Float64Array, BoolArray]:
        """See `RewardDefinition`."""
        logs = timeline.logs
        starts = timeline.times[logs.session_offsets[:-1]]  # [S]
        window_ends = timeline.session_ends + timeline.horizon(self.horizon)
        seen_ends = np.minimum(window_ends, timeline.known_until[logs.session_offsets[1:] - 1])
        sessions = np.arange(logs.n_sessions, dtype=np.int64)
        last = np.searchsorted(logs.session_offsets, logs.offsets[1:])[logs.trajectory_of_session]
        beyond = first_after(starts, sessions + 1, last.astype(np.int64), seen_ends, side="right")
        counts = (beyond - sessions - 1).astype(np.float64)
        row = logs.session_of_row
        return counts[row], window_ends[row] <= timeline.known_until


@dataclass(frozen=True, kw_only=True)
class ReturnWithin:
    """1 if the user starts another session within ``horizon`` of this session's end, else 0.

    A return is one event: it is paid once, at the session's last decision, so that the rewards of a user add
    up to the number of returns. ``pays="decision"`` gives it to every decision of the session, as a
    bandit over single decisions needs it; then rewards must not be added up.
    """

    horizon: Duration = "7d"
    pays: Literal["session", "decision"] = "session"

    def __post_init__(self) -> None:
        if self.pays not in ("session", "decision"):
            raise ConfigError(expected="pays 'session' or 'decision'", found=repr(self.pays))

    def look_ahead(self, timeline: Timeline) -> tuple[Float64Array, BoolArray]:
        """See `RewardDefinition`."""
        counts, observed = SessionsWithin(horizon=self.horizon).look_ahead(timeline)
        returned = np.minimum(counts, 1.0)
        return (self.paid(timeline.logs, returned) if self.pays == "session" else returned), observed

    @staticmethod
    def paid(logs: LoggedData, returned: Float64Array) -> Float64Array:
        """Move the value that all decisions of a session share [n] to its last decision; 0 elsewhere."""
        once = np.zeros(len(returned))
        last = logs.session_offsets[1:] - 1
        once[last] = returned[last]
        return once


@dataclass(frozen=True, kw_only=True)
class SumWithin:
    """The sum of a metric over this and later decisions within ``horizon``.

    With ``per`` the sum becomes a rate: horizon "90d" and per "30d" give the mean per month.
    """

    metric: str
    horizon: Duration = "30d"
    per: Duration | None = None

    def look_ahead(self, timeline: Timeline) -> tuple[Float64Array, BoolArray]:
        """See `RewardDefinition`."""
        horizon = timeline.horizon(self.horizon)
        scale = 1.0 if self.per is None else timeline.horizon(self.per) / horizon
        stops, observed = _window(timeline, horizon)
        return scale * window_sums(timeline.metric(self.metric), stops), observed


@dataclass(frozen=True, kw_only=True)
class DiscountedSum:
    """sum_j gamma^{j - t} m_j (``per="step"``), or gamma^{(t_j - t) / per} for a duration such as "1d".

    ``horizon`` counts decisions when ``per="step"``, and is a duration otherwise. Without a horizon the
    sum runs to the end of the log, and a decision counts as observed once gamma^{steps or time seen}, the
    weight of what may be missing, has fallen to ``tail``. Note that with ``per="step"`` a decision needs
    enough *later decisions* to count as observed, which favours active users: take a duration where
    activity itself is part of the outcome.
    """

    metric: str
    gamma: float
    per: Duration = "step"
    horizon: Duration | None = None
    tail: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise ConfigError(expected="gamma in (0, 1]", found=repr(self.gamma))
        if not 0 < self.tail < 1:
            raise ConfigError(expected="tail in (0, 1)", found=repr(self.tail))
        if self.gamma == 1 and self.horizon is None:
            raise ConfigError(
                expected="a horizon, because gamma = 1 never forgets the unseen future",
                found="horizon=None",
                remedy="set a horizon, or gamma below 1",
            )

    def look_ahead(self, timeline: Timeline) -> tuple[Float64Array, BoolArray]:
        """See `RewardDefinition`."""
        unit_name: Literal["step", "us"] = "step" if self.per == "step" else timeline.logs.time_unit
        unit = 1 if self.per == "step" else timeline.horizon(self.per)
        if self.horizon is None:
            _, observed = _window(timeline, math.log(self.tail) / math.log(self.gamma) * unit)
            stops = _seen_stops(timeline)
        else:
            stops, observed = _window(timeline, in_time_unit(self.horizon, unit_name))
        values = timeline.metric(self.metric)
        return window_sums(values, stops, gamma=self.gamma, clock=timeline.times, unit=unit), observed


def derive(
    logs: LoggedData,
    definition: RewardDefinition,
    *,
    censored: Censored | Completion = "drop",
    log_end: LogEnd | None = None,
) -> LoggedData:
    """The log with ``definition`` as its reward; see the module docstring for censoring.

    ``log_end`` is the time up to which the log is complete: a number in the unit of the times, or for
    timestamps a datetime or an ISO date (UTC unless it says otherwise).
    """
    if censored not in ("drop", "mark") and not isinstance(censored, Completion):
        raise ConfigError(
            expected="censored to be 'drop' or 'mark', or a completion",
            found=repr(censored),
            remedy="to complete rewards that have not matured: censored=shpi.Complete()",
        )
    timeline = _timeline(logs, definition, log_end)
    if isinstance(censored, Completion) and timeline.counted:
        timeline = _timeline(_closed(logs), definition, log_end)
    logs = replace(timeline.logs, immediate=_immediate(timeline, definition))
    rewards, closed = definition.look_ahead(timeline)
    open_ = ~closed & ~timeline.terminated  # rewards that are still unknown
    observed = np.ones(len(logs), bool) if not open_.any() else closed if timeline.common else ~open_
    unseen = int((~observed).sum())
    if unseen == len(logs):
        raise DataError(
            expected=f"at least one decision whose future is known as far as {definition!r} looks",
            found=f"that all {unseen:,} windows reach beyond the end of the log",
            remedy="choose a shorter horizon, or give log_end if the log is complete for longer",
        )
    ledger = replace(logs.ledger, notes=(*logs.ledger.notes, f"reward derived from the log: {definition!r}"))
    if isinstance(censored, Completion):
        note = f"{int(open_.sum()):,} rewards that had not matured were completed: {censored!r}"
        ledger = replace(ledger, notes=(*ledger.notes, note)) if open_.any() else ledger
        whole = censored.complete(timeline, definition, rewards, open_) if open_.any() else rewards
        return replace(logs, rewards=whole, reward_observed=None, ledger=ledger)
    if unseen and not timeline.common and (~closed & timeline.terminated).any():
        note = "users who terminated are too many among those with known rewards: consider shpi.Complete()"
        ledger = replace(ledger, notes=(*ledger.notes, note))
    if censored == "mark" or not unseen:
        return replace(logs, rewards=rewards, reward_observed=observed if unseen else None, ledger=ledger)
    drop = Drop(
        reason="future not observed: the reward's window reaches beyond the end of the log",
        rows=unseen,
        column="time",
        example=int(np.flatnonzero(~observed)[0]),
        remedy="shorten the horizon, give log_end if the log is complete for longer, or complete the rewards "
        "to learn from: censored=shpi.Complete()",
    )
    return keep_prefixes(
        replace(logs, rewards=rewards, reward_observed=None), observed, ledger.with_drop(drop)
    )


def _timeline(logs: LoggedData, definition: RewardDefinition, log_end: LogEnd | None) -> Timeline:
    times = logs.times.astype(np.int64 if logs.times.dtype.kind in "iub" else np.float64)
    known = np.full(len(logs), times.max(), dtype=times.dtype)
    timeline = Timeline(logs=logs, times=times, known_until=known)
    if isinstance(definition, DiscountedSum) and definition.per == "step":
        return timeline.in_steps()
    if log_end is not None:
        known = np.full(len(logs), _as_time(log_end, logs.time_unit), dtype=times.dtype)
        return replace(timeline, known_until=known)
    if logs.time_unit == "step" and np.array_equal(times, logs.steps):
        return timeline.in_steps()
    return timeline


def _counted_until(logs: LoggedData) -> tuple[Int64Array, bool]:
    """The step up to which each decision's future is known [n], and whether it is the same for all."""
    lengths = np.diff(logs.offsets)
    longest = int(lengths.max())
    if (lengths[~logs.terminated] == longest).all():
        return np.full(len(logs), longest - 1, dtype=np.int64), True
    return np.repeat(lengths - 1, lengths), False


def _closed(logs: LoggedData) -> LoggedData:
    """The log without last decisions whose next context is unknown, except those of terminated users."""
    kept = np.ones(len(logs), dtype=bool)
    kept[logs.offsets[1:] - 1] = logs.final_observed | logs.terminated
    if kept.all():
        return logs
    drop = Drop(
        reason="last decision of a trajectory whose next context is not in the log",
        rows=int((~kept).sum()),
        example=int(np.flatnonzero(~kept)[0]),
        remedy="log the context after the last decision, or mark trajectories as terminated",
    )
    if not kept.any():
        raise DataError(expected="decisions whose next context is known", found="none", remedy=drop.remedy)
    return keep_prefixes(logs, kept, logs.ledger.with_drop(drop))


def _immediate(timeline: Timeline, definition: RewardDefinition) -> Float64Array:
    """The metric of each decision itself [n]; 0 if the reward is not a sum of a metric."""
    name = getattr(definition, "metric", None)
    return timeline.metric(name) if isinstance(name, str) else np.zeros(len(timeline.logs))


def _as_time(value: LogEnd, unit: str) -> int | float:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ConfigError(expected="log_end as an ISO date", found=repr(value)) from None
    if isinstance(value, datetime):
        if unit != "us":
            raise ConfigError(expected="log_end as a number, like this log's times", found=repr(value))
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1_000_000)
    return value


def _row_stops(logs: LoggedData) -> Int64Array:
    """For each decision [n], the end of its trajectory."""
    return np.repeat(logs.offsets[1:], np.diff(logs.offsets))


def _seen_stops(timeline: Timeline) -> Int64Array:
    """For each decision [n], the first row of its trajectory that is later than ``known_until``."""
    rows = np.arange(len(timeline.times), dtype=np.int64)
    return first_after(timeline.times, rows, _row_stops(timeline.logs), timeline.known_until, side="right")


def _window(timeline: Timeline, horizon: int | float) -> tuple[Int64Array, BoolArray]:
    """For each decision, the first row outside [t, t + h), and whether the window closed in time."""
    rows = np.arange(len(timeline.times), dtype=np.int64)
    stops = first_after(timeline.times, rows, _seen_stops(timeline), timeline.times + horizon, side="left")
    # Whole-numbered times: the last moment inside the window is t + h - 1.
    last = timeline.times + horizon - (1 if timeline.times.dtype.kind == "i" else 0)
    return stops, last <= timeline.known_until
