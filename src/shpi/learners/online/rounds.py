"""Measurements of the policies that acted in each round, and the choice of the one to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from shpi.advantages import Advantages
from shpi.data._log import ragged
from shpi.data.logged import LoggedData
from shpi.errors import DataError
from shpi.learners.base import rewards_of
from shpi.learners.improved import Gain, Iteration
from shpi.protocols import Policy

QUANTILE = 1.645  # one-sided bounds of 95 % confidence


class Seen(NamedTuple):
    """One round's data, with the advantages under its own policy and its own V."""

    logs: LoggedData
    advantages: Advantages


def pooled(rounds: Sequence[LoggedData]) -> LoggedData:
    """The decisions of several rounds as one log, in this order; every trajectory is a user of its own.

    Only what regressions and values need is kept, so that another log can be joined to a simulator's.
    """
    last = rounds[-1]
    if len(rounds) == 1:
        return last
    for logs in rounds:
        if logs.schema.width != last.schema.width:
            raise DataError(
                expected=f"contexts of {last.schema.width} dimensions in all rounds",
                found=f"{logs.schema.width}",
                remedy="the log must describe users as the world does",
            )

    def joined(name: str) -> Any:
        parts = [getattr(logs, name) for logs in rounds]
        return None if any(column is None for column in parts) else np.concatenate(parts)

    def offsets(name: str) -> Any:
        return ragged.offsets_from_lengths(np.concatenate([np.diff(getattr(logs, name)) for logs in rounds]))

    names = ("contexts", "actions", "rewards", "propensities", "candidates", "terminated", "final_contexts")
    return LoggedData.from_arrays(
        **{name: joined(name) for name in (*names, "final_observed", "final_candidates")},
        offsets=offsets("offsets"),
        session_offsets=offsets("session_offsets"),
        schema=last.schema,
        action_space=last.action_space,
    )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The mean undiscounted return per user, of the policy with its exploration."""

    mean: float
    error: float  # standard error
    users: int

    @classmethod
    def of(cls, logs: LoggedData) -> Measured:
        """Measure on one round's log: each user is served once, so users are independent."""
        rewards = rewards_of(logs, "OnlineSHPI")
        returns = np.bincount(logs.trajectory_of_row, weights=rewards, minlength=logs.n_trajectories)
        users = len(returns)
        spread = float(returns.std(ddof=1)) if users > 1 else np.inf
        return cls(mean=float(returns.mean()), error=spread / float(np.sqrt(users)), users=users)


@dataclass(frozen=True, kw_only=True, eq=False)
class Round(Iteration):
    """One improvement. Its policy is measured on the users of the next round, who are new to it."""

    measured: Measured | None = None  # None: it never acted

    @classmethod
    def after(cls, number: int, advantages: Advantages, changed: float, policy: Policy) -> Round:
        """Summarise an improvement, before its policy has acted."""
        return cls(**vars(Iteration.of(number, advantages, changed, policy, None)))


def with_measurements(rounds: Sequence[Round], measured: Sequence[Measured]) -> tuple[Round, ...]:
    """Give each round the measurement of its policy, and the gain over that of the start, measured[0]."""
    with_gains = []
    for round_ in rounds:
        mine = measured[round_.number] if round_.number < len(measured) else None
        gain = None if mine is None else _gain(measured[0], mine)
        with_gains.append(replace(round_, measured=mine, gain=gain))
    return tuple(with_gains)


def best_round(measured: Sequence[Measured]) -> int:
    """The latest policy within one standard error of the best that did not measure worse than the start, 0.

    A maximum over many noisy means is partly luck. Among policies that do not differ by more than noise the
    latest has learned from the most data. The start is measured without exploration and the others, except
    the last, with it, so a policy that measures as well as the start is at least as good.
    """
    start, best = measured[0], max(measured, key=lambda m: m.mean)
    least = max(start.mean, best.mean - best.error)
    return max((j for j, m in enumerate(measured) if j > 0 and m.mean >= least), default=0)


def _gain(start: Measured, now: Measured) -> Gain:
    estimate, error = now.mean - start.mean, float(np.hypot(start.error, now.error))
    return Gain(
        estimate=estimate,
        lower=estimate - QUANTILE * error,
        standard_error=error,
        effective_decisions=float(now.users),
        users=now.users,
    )
