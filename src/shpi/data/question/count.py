r"""Count a metric in a log: the log, cut to each user's window, with the metric as its reward.

Entry e_i is the time of a user's first decision, W the window, and the log is complete up to its end L. A
user is observed for C_i = L - e_i: whether C_i reaches W depends on when a user came, not on what the user
does. So there is no need to guess who has left: a decision at age s = t - e_i is weighted by the inverse of
the share of users who are observed that long,

    r'_it = r_it / G(s),    G(s) = share of users with C_i >= s,      E[sum_t r'_it] = E[sum_{s < W} r_it]

which, at every age, is the mean over the users who are observed. If everybody is observed for the whole
window, G = 1 and the result is the plain mean over the users of the table. The window closes for everybody,
so nothing is left to be bootstrapped: the trajectories are complete (``endings`` is "by window").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shpi.data._log.slicing import cut
from shpi.data.durations import MICROSECONDS, describe, in_time_unit
from shpi.data.question.metric import COUNTS, Metric
from shpi.errors import ConfigError, DataError
from shpi.protocols import BoolArray, Float64Array, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData


# Name of the metric that holds the weight of each decision, for estimators that count decisions or sessions.
WEIGHTS = "decisions in the window"


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The metric that a log's reward measures, and its plain mean over users observed to the end."""

    metric: Metric
    users: int
    observed_less: float  # share of users whose window reaches beyond the end of the log
    by_hand: float  # the plain mean over the users who are observed for the whole window
    by_hand_error: float  # its standard error
    by_hand_users: int

    def words(self) -> str:
        """The metric, and how many users are observed for less than its window."""
        text = self.metric.words()
        if self.metric.window is None:
            return text
        if self.observed_less == 0:
            return f"{text}; all users are observed for that long"
        return f"{text}; {_percent(self.observed_less)} of users are observed for less and weighted for it"

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return asdict(self) | {"metric": self.metric.to_mapping()}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Counted:
        """The inverse of `to_json`."""
        return cls(**(content | {"metric": Metric.of(content["metric"])}))


@dataclass(frozen=True, kw_only=True)
class Observed:
    """How long the users of a whole log are observed, which a part of the log cannot tell."""

    log_end: int | float
    times: NDArray[Any]  # [U] C_i, increasing

    def share(self, ages: NDArray[Any]) -> Float64Array:
        """G(s): the share of users who are observed for at least each age."""
        beyond = len(self.times) - np.searchsorted(self.times, ages, side="left")
        shares: Float64Array = beyond / len(self.times)
        return shares


def count(
    logs: LoggedData,
    metric: Metric | str,
    *,
    log_end: int | float | None = None,
    observed: Observed | None = None,
) -> LoggedData:
    """The log with the metric as its reward; see the module docstring.

    Args:
        logs: a log in which no metric was counted yet.
        metric: the metric to count.
        log_end: the time up to which the log is complete, in its own unit; None takes its last time.
        observed: how long users are observed, if ``logs`` is a part of a larger log.
    """
    chosen = Metric.of(metric)
    if logs.counted is not None:
        if logs.counted.metric == chosen:
            return logs
        raise ConfigError(
            expected=f"the metric that was counted in this log, '{logs.counted.metric.label}'",
            found=f"'{chosen.label}'",
            remedy="count another metric in the original table",
        )
    logs = _from_entry(logs, chosen)
    end = log_end if log_end is not None else observed.log_end if observed else logs.times.max()
    values, known = _values(logs, chosen, end)
    if chosen.window is None:
        return _plain(logs, chosen, values, known)
    window = in_time_unit(chosen.window, logs.time_unit)
    known_end = end - (0 if chosen.within is None else in_time_unit(chosen.within, logs.time_unit))
    entry = user_entries(logs)
    reach = observed or Observed(log_end=end, times=np.sort((known_end - entry)[known_end >= entry]))
    if not len(reach.times) or reach.times[-1] < window - _tick(logs):
        raise _too_long(logs, chosen, reach)
    ages = logs.times - entry[logs.user_of_row]
    kept = known & (ages < window)
    scale = 1.0 if chosen.per is None else in_time_unit(chosen.per, logs.time_unit) / window
    facts = _facts(logs, chosen, np.where(kept, scale * values, 0.0), known_end - entry, window)
    weights = scale / reach.share(np.where(kept, ages, 0))
    return _weighted(logs, facts, values, weights, kept)


def observe(parts: Iterable[LoggedData], metric: Metric, log_end: int | float | None = None) -> Observed:
    """How long the users of all parts are observed, for a metric with a window.

    Args:
        parts: the parts of a log, all decisions of a user in one of them; iterated once.
        metric: the metric that will be counted in each part.
        log_end: the time up to which the log is complete; None takes its last time.
    """
    entries, ends, within = [], [], 0
    for logs in parts:
        ends.append(logs.times.max())
        within = 0 if metric.within is None else int(in_time_unit(metric.within, logs.time_unit))
        entries.append(user_entries(_from_entry(logs, metric)))
    end = max(ends) if log_end is None else log_end
    entry = np.concatenate(entries)
    known_end = end - within
    return Observed(log_end=end, times=np.sort((known_end - entry)[known_end >= entry]))


def in_window(logs: LoggedData) -> Float64Array:
    """The weight of each decision [n] in the metric's window; 1 where there are no weights."""
    return logs.metrics.get(WEIGHTS, np.ones(len(logs)))


def user_entries(logs: LoggedData) -> NDArray[Any]:
    """The time of each user's first decision [users], in the order of `LoggedData.user_codes`."""
    starts = logs.times[logs.offsets[:-1]]
    entry = np.full(logs.n_users, starts.max(), dtype=starts.dtype)
    np.minimum.at(entry, logs.user_codes, starts)
    return entry


# ---------------------------------------------------------------------- what is added up


def _values(logs: LoggedData, metric: Metric, end: int | float) -> tuple[Float64Array, BoolArray]:
    """The contribution of each decision [n], and whether it is known at the end of the log [n]."""
    known = logs.times <= end
    if metric.what in logs.metrics:
        return logs.metrics[metric.what], known
    if metric.what == "reward" and logs.rewards is not None:
        if logs.reward_observed is not None:
            known = known & logs.reward_observed
        return logs.rewards, known
    if metric.what == "decisions":
        return np.ones(len(logs)), known
    if metric.what == "sessions":
        return _at(logs, logs.session_offsets[:-1]), known
    if metric.what == "active days":
        return _first_of_day(logs), known
    if metric.what == "returns":
        return _returns(logs, metric, end)
    outcomes = [*sorted(logs.metrics), *([] if logs.rewards is None else ["reward"])]
    raise ConfigError(
        expected=f"a metric of {', '.join([*outcomes, *COUNTS])}",
        found=repr(metric.what),
        remedy="name the column under 'metrics' or 'reward' in the column map, or under [[events]]",
    )


def _returns(logs: LoggedData, metric: Metric, end: int | float) -> tuple[Float64Array, BoolArray]:
    """1 at the last decision of a session that is followed by another one within ``metric.within``."""
    within = in_time_unit(metric.within or "7d", logs.time_unit)
    stops, starts = logs.session_offsets[1:] - 1, logs.session_offsets[:-1]
    follows = np.append(logs.trajectory_of_session[1:] == logs.trajectory_of_session[:-1], False)
    gap = np.append(logs.times[starts[1:]] - logs.times[stops[:-1]], 0)
    paid = stops[follows & (gap <= within)]
    known = (logs.times[stops] <= end - within)[logs.session_of_row]
    return _at(logs, paid), known


def _first_of_day(logs: LoggedData) -> Float64Array:
    if logs.time_unit != "us":
        raise ConfigError(
            expected="times with a calendar, for active days",
            found="plain numbers",
            remedy="say what they count, e.g. time_unit = 'ms'",
        )
    days = logs.times // MICROSECONDS["d"]
    code = logs.user_of_row
    order = np.lexsort((logs.times, code))
    new = np.append(True, (np.diff(days[order]) != 0) | (np.diff(code[order]) != 0))
    return _at(logs, order[new])


def _at(logs: LoggedData, rows: Int64Array) -> Float64Array:
    values = np.zeros(len(logs))
    values[rows] = 1.0
    return values


# ---------------------------------------------------------------------- from and to logs


def _from_entry(logs: LoggedData, metric: Metric) -> LoggedData:
    if metric.entry is None:
        return logs
    if logs.time_unit != "us":
        raise ConfigError(expected="times with a calendar, for an entry date", found="plain numbers")
    moment = datetime.fromisoformat(metric.entry)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    kept = logs.times >= round(moment.timestamp() * 1_000_000)
    if not kept.any():
        raise DataError(expected=f"decisions from {metric.entry} on", found="none")
    return logs if kept.all() else cut(logs, kept, f"before the metric's entry, {metric.entry}", asked=True)


def _plain(logs: LoggedData, metric: Metric, values: Float64Array, known: BoolArray) -> LoggedData:
    """Without a window: the values as they are, without decisions whose value is not known yet."""
    immediate = np.zeros(len(logs)) if metric.what == "returns" else logs.immediate
    facts = _facts(logs, metric, np.where(known, values, 0.0), None, None)
    plain = replace(logs, rewards=values, reward_observed=None, immediate=immediate, counted=facts)
    if known.all():
        return plain
    return replace(cut(plain, known, f"too late for '{metric.label}' to be known", asked=True), counted=facts)


def _weighted(
    logs: LoggedData, facts: Counted, values: Float64Array, weights: Float64Array, kept: BoolArray
) -> LoggedData:
    at_once = np.zeros(len(logs)) if facts.metric.what == "returns" else values
    in_part = {WEIGHTS: weights} if np.any(weights[kept] != 1) else {}
    weighted = replace(
        logs,
        rewards=values * weights,
        reward_observed=None,
        immediate=at_once if logs.immediate is None else logs.immediate,
        metrics={name: column * weights for name, column in logs.metrics.items()} | in_part,
        counted=facts,
        endings="by window",
    )
    if not kept.all():
        weighted = cut(weighted, kept, f"outside the window of '{facts.metric.label}'", asked=True)
    return replace(weighted, terminated=np.ones(weighted.n_trajectories, dtype=bool))


def _facts(
    logs: LoggedData,
    metric: Metric,
    values: Float64Array,
    observed: NDArray[Any] | None,
    window: int | float | None,
) -> Counted:
    """Counts and the plain mean; ``observed`` [users] is negative for users who entered too late to count."""
    sums = np.bincount(logs.user_of_row, weights=values, minlength=logs.n_users).astype(np.float64)
    counts = np.ones(logs.n_users, bool) if observed is None else observed >= 0
    whole = counts
    if observed is not None and window is not None:
        whole = observed >= window - _tick(logs)
    several = int(whole.sum()) > 1
    return Counted(
        metric=metric,
        users=int(counts.sum()),
        observed_less=1 - float(whole.sum() / counts.sum()),
        by_hand=float(sums[whole].mean()),
        by_hand_error=float(sums[whole].std(ddof=1) / np.sqrt(whole.sum())) if several else 0.0,
        by_hand_users=int(whole.sum()),
    )


def _tick(logs: LoggedData) -> int:
    """1 for whole-numbered times, where the last moment inside a window is W - 1 after entry; else 0."""
    return 1 if logs.times.dtype.kind in "iu" else 0


def _too_long(logs: LoggedData, metric: Metric, reach: Observed) -> ConfigError:
    longest = float(reach.times[-1]) if len(reach.times) else 0.0
    words = describe(longest) if logs.time_unit == "us" else f"{longest:g}"
    return ConfigError(
        expected=f"at least one user who is observed for the whole window of '{metric.label}'",
        found=f"users who are observed for at most {words}",
        remedy="choose a shorter window, or read a longer log",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.4g} %"
