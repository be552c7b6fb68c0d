"""How users end: where the log does not say, the audit asks, and shows how much depends on the answer.

Between two decisions of a user lies a gap, and after the last one a silence that lasts to the end of the log.
A silence longer than almost all gaps means that the user has left; a shorter one may be cut by the log's end.
`churn_after` is proposed as a round time that 95 % of the gaps between sessions do not exceed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shpi.data.audit.facts import Spread
from shpi.data.durations import MICROSECONDS, describe
from shpi.data.question.endings import last_of_user, leave_after
from shpi.errors import ShpiError
from shpi.protocols import Float64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

COVERED = 0.95  # share of the gaps between sessions that the proposed churn_after covers
ROUND = ("1h", "3h", "6h", "12h", "1d", "2d", "3d", "5d", "7d", "10d", "14d", "21d", "30d", "45d", "60d",
         "90d", "120d", "180d", "365d")  # fmt: skip
LONGEST_SHARE = 0.5  # of the log's time span: a longer churn_after would leave too little to learn from


@dataclass(frozen=True, kw_only=True)
class EndingFacts:
    """Gaps, silences, a proposed churn_after, and the value of the logging policy under each reading."""

    how: str  # `LoggedData.endings`
    gaps: Spread | None  # between sessions of one user, in the unit of the times; None: no user comes twice
    silence: Spread  # from the last decision of a user to the end of the log
    churn_after: str | None  # the proposal
    longer_gaps: float | None  # share of gaps that are longer than the proposal
    plain: float | None  # sum of the rewards in the table, per user; None: no reward, or endings are known
    left: float | None  # value of mu if every user left with the last decision
    censored: float | None  # value of mu if nobody left, and the log only stops
    by_churn: float | None  # value of mu under the proposal


def ending_facts(logs: LoggedData) -> EndingFacts:
    """Measure the gaps; compute values only if the log does not say how users end."""
    end = logs.times.max()
    starts, stops = logs.times[logs.session_offsets[:-1]], logs.times[logs.session_offsets[1:] - 1]
    same = logs.trajectory_of_session[1:] == logs.trajectory_of_session[:-1]
    gaps = (starts[1:] - stops[:-1])[same]
    if not len(gaps):  # no sessions: the gaps between decisions
        inner = np.ones(len(logs), dtype=bool)
        inner[logs.offsets[:-1]] = False
        gaps = np.diff(logs.times)[inner[1:]]
    silence = (end - logs.times[logs.offsets[1:] - 1])[last_of_user(logs)]
    proposal = _proposal(logs, gaps.astype(np.float64)) if len(gaps) else None
    unknown = logs.endings == "unknown" and logs.rewards is not None and logs.reward_observed is None
    plain = float(np.sum(logs.rewards)) / logs.n_users if unknown and logs.rewards is not None else None
    return EndingFacts(
        how=logs.endings,
        gaps=Spread.of(gaps) if len(gaps) else None,
        silence=Spread.of(silence),
        churn_after=proposal,
        longer_gaps=None if proposal is None else float((gaps > _micro(proposal)).mean()),
        plain=plain,
        left=plain,
        censored=_value(logs) if unknown else None,
        by_churn=_churned(logs, proposal) if unknown and proposal is not None else None,
    )


def in_words(amount: float, unit: str) -> str:
    """A duration in the log's unit, in words."""
    return describe(amount) if unit == "us" else f"{amount:g}"


def _proposal(logs: LoggedData, gaps: Float64Array) -> str | None:
    if logs.time_unit != "us":
        return None
    needed = float(np.quantile(gaps, COVERED))
    span = float(logs.times.max() - logs.times.min())
    fitting = [text for text in ROUND if needed <= _micro(text) <= LONGEST_SHARE * span]
    return fitting[0] if fitting else None


def _micro(text: str) -> int:
    return int(text[:-1]) * MICROSECONDS[text[-1]]


def _churned(logs: LoggedData, churn_after: str) -> float | None:
    try:
        return _value(leave_after(logs, churn_after))
    except ShpiError:
        return None


def _value(logs: LoggedData) -> float:
    """The value of a user over as many decisions as the longest trajectory has; see `shpi.ope.problem`."""
    lengths = np.diff(logs.offsets)
    horizon, trajectories = int(lengths.max()), len(lengths)
    stops = np.bincount(lengths, minlength=horizon + 1)
    deciding = trajectories - np.cumsum(stops)[:horizon]  # [H]
    gone = np.bincount(lengths[logs.terminated], minlength=horizon + 1)[1:horizon]
    going = deciding[:-1] - gone
    kept = np.append(1.0, np.cumprod(np.where(going > 0, deciding[1:] / np.maximum(going, 1), 1.0)))
    assert logs.rewards is not None
    paid = np.bincount(logs.steps, weights=logs.rewards, minlength=horizon)
    return float(np.sum(paid / kept) / logs.n_users)
