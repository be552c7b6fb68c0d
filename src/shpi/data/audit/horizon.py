"""A suggestion for k, the steps to look ahead, from the lengths of the sessions.

SHPI looks k steps ahead, about one session, and then adds the termination bonus. The suggestion is the
length that nine sessions in ten do not exceed, but at most `LONGEST`: the importance weights of k steps are
multiplied, and their variance grows with k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shpi.data._log.ragged import offsets_from_starts
from shpi.data.durations import parse_duration

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

LONGEST = 20  # decisions: the largest k that the audit proposes
GAPS = ("30m", "1h", "2h", "6h", "12h", "1d", "2d", "3d", "7d")  # session gaps to try
QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)  # of the session lengths


@dataclass(frozen=True, kw_only=True)
class GapOption:
    """The session lengths under another session gap."""

    gap: str
    mean_length: float
    q90: int


@dataclass(frozen=True, kw_only=True)
class Horizon:
    """A suggested k, and the reason for it."""

    k: int
    reason: str
    quantiles: tuple[tuple[float, int], ...]  # of the session length
    gaps: tuple[GapOption, ...]  # only where most sessions are single decisions


def horizon_advice(logs: LoggedData) -> Horizon:
    """Suggest k."""
    lengths = np.diff(logs.session_offsets)
    values = [int(v) for v in np.quantile(lengths, QUANTILES, method="inverted_cdf")]
    quantiles = tuple(zip(QUANTILES, values, strict=True))
    half, most = values[0], values[2]
    if len(logs) == logs.n_trajectories:
        return Horizon(
            k=1,
            reason="every trajectory is a single decision, so there is no next step: only a bandit (k = 1) "
            "can be learned from this log",
            quantiles=quantiles,
            gaps=(),
        )
    if most == 1:
        return _from_gaps(logs, quantiles)
    k = min(most, LONGEST)
    lengths_in_words = f"up to {half} and nine in ten up to {most} decisions"
    sessions = f"half of the sessions have {lengths_in_words}"
    if logs.n_sessions == logs.n_trajectories:
        sessions = f"the log has no sessions; half of the trajectories have {lengths_in_words}"
    capped = (
        f"; k is kept at {LONGEST}, because the weights of k steps are multiplied" if most > LONGEST else ""
    )
    gaps = _options(logs) if lengths.mean() < 2 else ()
    return Horizon(k=k, reason=sessions + capped, quantiles=quantiles, gaps=gaps)


def _from_gaps(logs: LoggedData, quantiles: tuple[tuple[float, int], ...]) -> Horizon:
    alone = f"{(np.diff(logs.session_offsets) == 1).mean():.0%} of the sessions are a single decision"
    if logs.time_unit != "us":
        k = int(min(np.median(np.diff(logs.offsets)), 5))
        reason = f"{alone}, so sessions say nothing about k; it is taken from the length of the trajectories"
        return Horizon(k=max(k, 1), reason=reason, quantiles=quantiles, gaps=())
    options = _options(logs)
    usable = [option for option in options if option.mean_length >= 2]
    if not usable:
        return Horizon(
            k=2,
            reason=f"{alone}, and no gap up to {GAPS[-1]} joins them: users decide too rarely for sessions",
            quantiles=quantiles,
            gaps=options,
        )
    best = usable[0]
    reason = (
        f"{alone}; with a session gap of {best.gap} they would have {best.mean_length:.1f} decisions on "
        f"average, and nine in ten up to {best.q90}"
    )
    return Horizon(k=min(best.q90, LONGEST), reason=reason, quantiles=quantiles, gaps=options)


def _options(logs: LoggedData) -> tuple[GapOption, ...]:
    return tuple(_option(logs, gap) for gap in GAPS) if logs.time_unit == "us" else ()


def _option(logs: LoggedData, gap: str) -> GapOption:
    starts = np.zeros(len(logs), dtype=bool)
    starts[1:] = np.diff(logs.times) > parse_duration(gap)
    starts[logs.offsets[:-1]] = True
    lengths = np.diff(offsets_from_starts(starts))
    return GapOption(
        gap=gap,
        mean_length=float(lengths.mean()),
        q90=int(np.quantile(lengths, 0.9, method="inverted_cdf")),
    )
