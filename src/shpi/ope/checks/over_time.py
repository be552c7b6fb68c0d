r"""The lift over time, and a test whether it changes.

Users are ordered by their first decision. The mean of the pseudo-values, lift + influence, over a group of
users is the lift of that group. The test compares the last third of the users with the others,

    z = (mean of the last third - mean of the others) / standard error

two-sided, at a level of 2 %. A verdict is about the future: if the lift has changed, the last third must
prove it alone. A metric with a window is compared among users who are observed for the whole window: of later
users the log shows only what happens soon after entry, which would look like a change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import numpy as np

from shpi._core.distributions import normal_tail
from shpi.data.durations import MICROSECONDS, in_time_unit
from shpi.ope.inference.intervals import interval_of, standard_error
from shpi.ope.problem import Chunk, Problem, once
from shpi.ope.results import Diagnostic, Estimate, Segment
from shpi.protocols import BoolArray, Float64Array, Int64Array

LEVEL = 0.02  # significance level: probability of a false alarm
PIECES = 5  # periods of entry, with equally many users each
LEAST_USERS = 30  # users in each group that is compared, at least
MOVED = 0.05  # mu has changed if the share of an action among its decisions differs by this much
DAY = MICROSECONDS["d"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Change:
    """The lift of the last third of the users, compared with that of the others."""

    recent: float  # lift of the last third
    before: float  # lift of the others
    z: float
    p_value: float  # two-sided
    clear: bool  # whether the change is significant
    late: BoolArray  # [U] users of the last third

    def diagnostic(self) -> Diagnostic:
        """The diagnostic for an evaluation. If the change is clear, the gate judges by the last third."""
        both_lifts = (
            f"{self.recent:+.4g} for the last third of the users, {self.before:+.4g} for those before"
        )
        sentence = (
            f"The effect is changing: {both_lifts} ({abs(self.z):.1f} standard errors)."
            if self.clear
            else f"The lift is steady over time: {both_lifts} ({abs(self.z):.1f} standard errors)."
        )
        return Diagnostic(
            name="change over time",
            severity="warning" if self.clear else "fine",
            sentence=sentence,
            figure=self.p_value,
            threshold=LEVEL,
        )


@once
def entries(problem: Problem) -> Int64Array | None:
    """The time of each user's first decision [U]; None without calendar times, or if all are equal."""
    if problem.head.time_unit != "us":
        return None
    joined: Int64Array = problem.by_user(_first_times)
    return joined if np.ptp(joined) > 0 else None


def _first_times(chunk: Chunk) -> Int64Array:
    logs = chunk.raw
    first = np.full(logs.n_users, np.iinfo(np.int64).max)
    np.minimum.at(first, logs.user_codes, logs.times[logs.offsets[:-1]].astype(np.int64))
    return first


def observed_throughout(problem: Problem, when: Int64Array) -> BoolArray:
    """Users who are observed for the whole window of the metric [U]; all users if it has no window."""
    counted = problem.head.counted
    if counted is None or counted.metric.window is None:
        return np.ones(len(when), dtype=bool)
    return when <= problem.end - in_time_unit(counted.metric.window, "us")


def change_of(problem: Problem, estimate: Estimate) -> Change | None:
    """Compare the last third with the others; None without calendar times or with too few users."""
    when = entries(problem)
    if when is None:
        return None
    whole = observed_throughout(problem, when)
    if whole.sum() < 2 * LEAST_USERS:
        return None
    late = whole & (when > np.quantile(when[whole], 2 / 3))
    early = whole & ~late
    pseudo = estimate.lift + estimate.influence_lift
    if min(late.sum(), early.sum()) < LEAST_USERS:
        return None
    recent, before = pseudo[late], pseudo[early]
    error = math.hypot(standard_error(recent), standard_error(before))
    z = float((recent.mean() - before.mean()) / error) if error > 0 else 0.0
    p_value = float(2 * normal_tail(abs(z)))
    return Change(
        recent=float(recent.mean()),
        before=float(before.mean()),
        z=z,
        p_value=p_value,
        clear=p_value < LEVEL,
        late=late,
    )


def moved_mu(problem: Problem, late: BoolArray) -> str:
    """A sentence on how the logging policy itself has changed; empty if it has not.

    Args:
        problem: the evaluation problem.
        late: users of the last third [U].
    """
    counts = problem.total(partial(_actions_by_entry, late=problem.for_blocks(late)))  # [2, A]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)  # [2, A]
    action = int(np.abs(shares[1] - shares[0]).argmax())
    if abs(shares[1, action] - shares[0, action]) < MOVED:
        return ""
    label = problem.head.action_space.ids[action]
    return (
        f" The logging policy has changed too: it takes {label} in {shares[1, action]:.0%} of its decisions "
        f"there, in {shares[0, action]:.0%} before. The lift of the last third is against what it does now."
    )


def _actions_by_entry(chunk: Chunk, late: dict[int, BoolArray]) -> Int64Array:
    """How often each action was taken for earlier users [0], and for users of the last third [1]: [2, A]."""
    logs = chunk.raw
    recent = late[chunk.number][logs.user_of_row]
    return np.stack([np.bincount(logs.actions[recent == k], minlength=logs.n_actions) for k in (False, True)])


def about_time(problem: Problem, estimate: Estimate) -> list[Diagnostic]:
    """One diagnostic for a log with calendar times, else none."""
    change = change_of(problem, estimate)
    return [] if change is None else [change.diagnostic()]


def lift_over_time(problem: Problem, estimate: Estimate, own: Float64Array) -> tuple[Segment, ...]:
    """The lift by time of entry, for fifths of the users.

    Args:
        problem: the evaluation problem.
        estimate: estimate whose pseudo-values are averaged.
        own: influences of J(mu) [U], for the baselines.
    """
    when = entries(problem)
    if when is None or len(when) < PIECES * LEAST_USERS:
        return ()
    cuts = np.unique(np.quantile(when, np.arange(1, PIECES) / PIECES))
    piece = np.searchsorted(cuts, when, side="left")
    periods = []
    for number in range(len(cuts) + 1):
        mine = piece == number
        if mine.sum() < LEAST_USERS:
            continue
        pseudo = estimate.lift + estimate.influence_lift[mine]
        lift = float(pseudo.mean())
        first, last = (
            datetime.fromtimestamp(int(moment) // 1_000_000, tz=UTC).strftime("%Y-%m-%d")
            for moment in (when[mine].min(), when[mine].max())
        )
        periods.append(
            Segment(
                column="time of entry",
                label=f"{first} to {last}",
                users=int(mine.sum()),
                baseline=float(estimate.baseline + own[mine].mean()),
                lift=lift,
                error=standard_error(pseudo),
                interval=interval_of(lift, pseudo - lift, level=problem.settings.confidence),
            )
        )
    return tuple(periods)
