"""Parts of a log and their union: whole trajectories, whole users or whole sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from shpi.data._log import ragged
from shpi.data._log.cut import taken_as_cut, with_cut
from shpi.data._log.ledger import Drop, Ledger
from shpi.data._log.users import largest_held_out, split_hashes
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.protocols import BoolArray, IntArray

_ROW_FIELDS = (
    "contexts",
    "actions",
    "rewards",
    "times",
    "propensities",
    "behaviour",
    "candidates",
    "reward_observed",
    "immediate",
)
_TRAJECTORY_FIELDS = ("users", "terminated", "final_contexts", "final_observed", "final_candidates")


def select(logs: LoggedData, trajectories: IntArray | BoolArray | Sequence[int]) -> LoggedData:
    """The log of the chosen trajectories, in the given order. A contiguous run is a view, not a copy."""
    chosen = np.asarray(trajectories)
    if chosen.dtype == bool:
        if chosen.shape != (logs.n_trajectories,):
            raise ConfigError(expected=f"a mask of {logs.n_trajectories}", found=f"shape {chosen.shape}")
        chosen = np.flatnonzero(chosen)
    if chosen.size == 0:
        raise DataError(expected="at least one trajectory", found="an empty selection")
    if chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= logs.n_trajectories:
        raise ConfigError(expected=f"trajectories in 0..{logs.n_trajectories - 1}", found=str(chosen[:5]))
    chosen = chosen.astype(np.int64)
    first, last = int(chosen[0]), int(chosen[-1])
    run = len(chosen) == last - first + 1 and bool((np.diff(chosen) == 1).all())
    rows: Any = (
        slice(logs.offsets[first], logs.offsets[last + 1])
        if run
        else ragged.rows_of_groups(logs.offsets, chosen)
    )
    groups: Any = slice(first, last + 1) if run else chosen
    session_starts = np.zeros(len(logs), dtype=bool)
    session_starts[logs.session_offsets[:-1]] = True
    offsets = ragged.offsets_from_lengths(ragged.lengths(logs.offsets)[chosen])
    parts = {name: _take(getattr(logs, name), rows) for name in _ROW_FIELDS}
    parts |= {name: _take(getattr(logs, name), groups) for name in _TRAJECTORY_FIELDS}
    selected = replace(
        logs,
        **parts,
        offsets=offsets,
        session_offsets=ragged.offsets_from_starts(session_starts[rows]),
        metrics={name: values[rows] for name, values in logs.metrics.items()},
        ledger=Ledger(rows_in=int(offsets[-1]), rows_used=int(offsets[-1]), notes=logs.ledger.notes),
    )
    return with_cut(selected, taken_as_cut(logs)[groups])


def split_users(logs: LoggedData, held_out: float, *, seed: int) -> tuple[LoggedData, LoggedData]:
    """Two logs with no user in common; at least one user on either side.

    Users are split by a hash of their id: neither their order nor the shards of the log matter.
    """
    if not 0 < held_out < 1:
        raise ConfigError(expected="a share of held-out users in (0, 1)", found=str(held_out))
    if logs.n_users < 2:
        raise DataError(
            expected="at least two users to split",
            found="one user",
            remedy="split by time, or collect more users",
        )
    hashes = split_hashes(logs, seed)
    is_out = (hashes <= largest_held_out(hashes, held_out))[logs.user_codes]
    return select(logs, ~is_out), select(logs, is_out)


def split_time(logs: LoggedData, when: Any) -> tuple[LoggedData, LoggedData]:
    """Sessions that start before ``when``, and those that start at or after it.

    A session is never cut. The context of the first late decision is the observed last context of the early
    part, so that `concat` gives the original back.
    """
    moment = _moment(when, logs)
    late_session = logs.times[logs.session_offsets[:-1]] >= moment
    late = late_session[logs.session_of_row]
    if late.all() or not late.any():
        raise DataError(
            expected=f"sessions on both sides of {when}",
            found="all sessions on one side",
            where=f"times from {logs.times.min()} to {logs.times.max()}",
        )
    return cut(logs, ~late), cut(logs, late)


def cut(logs: LoggedData, keep: BoolArray, reason: str = "", *, asked: bool = False) -> LoggedData:
    """The kept rows [n]; every run of kept rows inside a trajectory becomes a trajectory.

    A run that is followed by a row that was not kept is truncated there, with that row's context observed.
    With a ``reason``, the ledger records the dropped rows; ``asked`` says whether the caller wanted the drop.
    """
    if not keep.any():
        raise DataError(expected="at least one decision", found="none left", remedy=reason)
    trajectory = logs.trajectory_of_row
    inside = np.append(False, trajectory[1:] == trajectory[:-1])
    starts = keep & ~(np.append(False, keep[:-1]) & inside)
    followed = np.append(inside[1:], False)
    lasts = np.flatnonzero(keep & ~(np.append(keep[1:], False) & followed))
    rows, home = np.flatnonzero(keep), trajectory[lasts]
    cut_short = followed[lasts]
    successor = np.minimum(lasts + 1, len(logs) - 1)
    final_contexts = np.where(cut_short[:, None], logs.contexts[successor], logs.final_contexts[home])
    final_candidates = None
    if logs.candidates is not None:
        ends = (
            logs.final_candidates if logs.final_candidates is not None else np.ones_like(logs.candidates[:0])
        )
        final_candidates = np.where(cut_short[:, None], logs.candidates[successor], np.asarray(ends)[home])
    session = logs.session_of_row[rows]
    session_starts = starts[rows] | np.append(True, session[1:] != session[:-1])
    used = len(rows)
    ledger = Ledger(rows_in=used, rows_used=used, notes=logs.ledger.notes)
    if reason:
        example = int(np.flatnonzero(~keep)[0]) if not keep.all() else None
        ledger = logs.ledger.with_drop(
            Drop(reason=reason, rows=len(logs) - used, example=example, asked=asked)
        )
    return replace(
        logs,
        **{name: _take(getattr(logs, name), rows) for name in _ROW_FIELDS},
        offsets=ragged.offsets_from_starts(starts[rows]),
        session_offsets=ragged.offsets_from_starts(session_starts),
        users=logs.users[home],
        terminated=logs.terminated[home] & ~cut_short,
        final_contexts=final_contexts.astype(np.float32, copy=False),
        final_observed=logs.final_observed[home] | cut_short,
        final_candidates=final_candidates,
        metrics={name: values[rows] for name, values in logs.metrics.items()},
        ledger=ledger,
    )


def concat(parts: Sequence[LoggedData]) -> LoggedData:
    """Merge logs into one, ordered by (user, time), whatever the order of the parts.

    Two trajectories of a user are joined if the first is not terminated and its observed final context equals
    the first context of the second.
    """
    whole = join(parts)
    starts = whole.times[whole.offsets[:-1]]
    order = np.lexsort((starts, whole.users))
    if (np.diff(order) != 1).any():
        whole = replace(select(whole, order), ledger=whole.ledger)
    return _join_continued(whole)


def join(parts: Sequence[LoggedData]) -> LoggedData:
    """The trajectories of several logs, one log after the other, unchanged."""
    if not parts:
        raise ConfigError(expected="at least one log", found="an empty list")
    _check_compatible(parts)
    head = parts[0]
    rows: dict[str, Any] = {name: _join(parts, name) for name in _ROW_FIELDS}
    groups: dict[str, Any] = {name: _join(parts, name) for name in _TRAJECTORY_FIELDS}
    counts = np.concatenate([ragged.lengths(logs.offsets) for logs in parts])
    sessions = np.concatenate([ragged.lengths(logs.session_offsets) for logs in parts])
    return replace(
        head,
        **rows,
        **groups,
        offsets=ragged.offsets_from_lengths(counts),
        session_offsets=ragged.offsets_from_lengths(sessions),
        metrics={name: np.concatenate([logs.metrics[name] for logs in parts]) for name in head.metrics},
        ledger=Ledger.sum(logs.ledger for logs in parts),
    )


def _join_continued(logs: LoggedData) -> LoggedData:
    """Remove the boundaries between trajectories of a user that continue each other."""
    first_rows = logs.offsets[1:-1]
    continued = (
        (logs.users[1:] == logs.users[:-1])
        & logs.final_observed[:-1]
        & ~logs.terminated[:-1]
        & (logs.final_contexts[:-1] == logs.contexts[first_rows]).all(axis=1)
        & (logs.times[first_rows - 1] <= logs.times[first_rows])
    )
    if not continued.any():
        return logs
    keep_end = np.append(~continued, True)
    parts = {name: _take(getattr(logs, name), keep_end) for name in _TRAJECTORY_FIELDS}
    return replace(logs, **parts, offsets=np.append(np.int64(0), logs.offsets[1:][keep_end]))


def _check_compatible(parts: Sequence[LoggedData]) -> None:
    head = parts[0]
    same: tuple[tuple[str, Callable[[LoggedData], Any]], ...] = (
        ("the same context schema", lambda logs: logs.schema),
        ("the same actions", lambda logs: logs.action_space),
        ("the same propensity mode", lambda logs: logs.propensity_mode),
        ("the same time unit", lambda logs: logs.time_unit),
        ("the same metrics", lambda logs: sorted(logs.metrics)),
        ("the same metric counted", lambda logs: None if logs.counted is None else logs.counted.metric),
        ("the same way to tell how users end", lambda logs: logs.endings),
        ("the same optional columns", lambda logs: [getattr(logs, name) is None for name in _ROW_FIELDS]),
    )
    for what, aspect in same:
        for index, logs in enumerate(parts):
            if aspect(logs) != aspect(head):
                raise DataError(
                    expected=f"{what} in every part",
                    found=f"a difference between part 0 and part {index}",
                    remedy="read the parts with the schema= and action_space= of the first",
                )


def _take(values: Any, index: Any) -> Any:
    return None if values is None else values[index]


def _join(parts: Sequence[LoggedData], name: str) -> Any:
    first = getattr(parts[0], name)
    return None if first is None else np.concatenate([getattr(logs, name) for logs in parts])


def _moment(when: Any, logs: LoggedData) -> int | float:
    """A time in the log's unit: a date, ISO text or datetime for calendar times, a number otherwise."""
    if isinstance(when, str) and logs.time_unit == "us":
        try:
            when = datetime.fromisoformat(when)
        except ValueError:
            raise ConfigError(expected="an ISO date or time", found=repr(when)) from None
    if isinstance(when, date) and not isinstance(when, datetime):
        when = datetime(when.year, when.month, when.day)
    if isinstance(when, datetime):
        if logs.time_unit != "us":
            raise ConfigError(expected="a number, as the log counts steps", found=repr(when))
        aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1_000_000)
    if isinstance(when, int | float | np.integer | np.floating):
        return float(when) if isinstance(when, float | np.floating) else int(when)
    raise ConfigError(expected="a date, an ISO time or a number", found=repr(when))
