"""The decomposition of long-term reward in the paper's introduction, computed on a log.

    LTR = usage / month = reward/recommendation × recommendations/session × sessions/month

A greedy recommender raises the first factor even if that lowers the other two, so it pays to see all
three. Sessions per month are counted per user, over the span of the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shpi.data.durations import MICROSECONDS

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

MONTH = 30 * MICROSECONDS["d"]  # microseconds


@dataclass(frozen=True, kw_only=True)
class Decomposition:
    """The counts behind the decomposition; without a reward only the last two factors are defined."""

    total_reward: float | None
    decisions: int
    sessions: int
    users: int
    periods: float  # length of the log in months, or 1 if the log is its own period
    period: str  # "month" or "log"

    @property
    def reward_per_decision(self) -> float | None:
        """Reward / recommendation."""
        return None if self.total_reward is None else self.total_reward / self.decisions

    @property
    def decisions_per_session(self) -> float:
        """Recommendations / session."""
        return self.decisions / self.sessions

    @property
    def sessions_per_period(self) -> float:
        """Sessions of one user / month."""
        return self.sessions / (self.users * self.periods)

    @property
    def ltr(self) -> float | None:
        """The reward of one user in one period: the product of the three factors."""
        return None if self.total_reward is None else self.total_reward / (self.users * self.periods)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return {
            "period": self.period,
            "periods": self.periods,
            "reward_per_decision": self.reward_per_decision,
            "decisions_per_session": self.decisions_per_session,
            "sessions_per_period": self.sessions_per_period,
            "ltr": self.ltr,
        }


def decompose(logs: LoggedData) -> Decomposition:
    """The factors of the log's long-term reward.

    A month is 30 days. A log shorter than a month is scaled up to one; a log without timestamps (or with
    a single one) has no months, and its period is the whole log. Censored rewards are replaced by the
    mean of the observed ones.
    """
    total = None
    if logs.rewards is not None:
        observed = logs.rewards if logs.reward_observed is None else logs.rewards[logs.reward_observed]
        total = float(observed.mean()) * len(logs) if len(observed) else None
    span = int(logs.times.max()) - int(logs.times.min()) if logs.time_unit == "us" else 0
    return Decomposition(
        total_reward=total,
        decisions=len(logs),
        sessions=logs.n_sessions,
        users=logs.n_users,
        periods=span / MONTH if span else 1.0,
        period="month" if span else "log",
    )
