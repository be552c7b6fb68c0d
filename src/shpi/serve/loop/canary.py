"""When a stage of a canary is over, when it is promoted, and when it is rolled back.

rolled back   proven worse by the confidence sequence · too many failed decisions · too slow ·
              importance weights whose mean is not 1 · not promoted within ``longest``
next stage    enough users with known rewards in both arms
promoted      the last stage is over, and the estimate is not below 0: the gate has already shown, on
              held-out users, that the policy is better; the canary only looks for evidence against it
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from shpi.data.durations import describe, parse_duration
from shpi.serve.loop.compare import Difference, Sums
from shpi.serve.loop.control import Canary, Control
from shpi.serve.loop.monitor import Monitor
from shpi.serve.settings import Settings

Move = Literal["wait", "next stage", "promote", "roll back"]
_FEWEST_DECISIONS = 200  # before error rate, latency and mean weight are judged


@dataclass(frozen=True, kw_only=True)
class Health:
    """How the canary's decisions went in this server: their number, failures, and total seconds."""

    decisions: int = 0
    failed: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """The next move, and the reason for it."""

    move: Move
    why: str


def judge(control: Control, monitor: Monitor, settings: Settings, health: Health, now: int) -> Ruling:
    """Decide what to do with the canary now."""
    canary = control.canary
    if canary is None or monitor.canary is None:
        return Ruling(move="wait", why="no policy is on trial")
    rules = settings.canary
    difference = monitor.canary.look(now, alpha=rules.alpha, planned=rules.users)
    bad = _unhealthy(settings, health, monitor.weights)
    if bad is not None:
        return Ruling(move="roll back", why=bad)
    if difference is not None and difference.worse:
        return Ruling(
            move="roll back",
            why=f"it brings {_by(difference)} per user than the champion, at most {difference.upper:+.4g} at "
            f"{1 - rules.alpha:.0%} over all looks ({difference.users} against {difference.others} users)",
        )
    if now - canary.since > parse_duration(rules.longest):
        return Ruling(
            move="roll back",
            why=f"it has not passed within {describe(parse_duration(rules.longest))}: "
            + _progress(monitor, canary, rules.users),
        )
    users, others = monitor.canary.users_in(canary.stage)
    if users < rules.users or others < rules.users:
        return Ruling(move="wait", why=_progress(monitor, canary, rules.users))
    if canary.stage + 1 < len(rules.stages):
        share = rules.stages[canary.stage + 1]
        return Ruling(move="next stage", why=f"{users} users with known rewards: on to {share:.0%}")
    if difference is not None and difference.estimate < 0 and min(users, others) >= 2 * rules.users:
        return Ruling(
            move="roll back",
            why=f"no evidence for it: it brings {_by(difference)} per user than the champion, with "
            f"{difference.users} against {difference.others} users",
        )
    if difference is None or difference.estimate < 0:
        estimate = "nothing" if difference is None else f"{difference.estimate:+.4g}"
        return Ruling(
            move="wait", why=f"the last stage has its users, and the estimate is {estimate} per user"
        )
    return Ruling(
        move="promote",
        why=f"it brings {_by(difference)} per user than the champion ({difference.lower:+.4g} to "
        f"{difference.upper:+.4g}, {difference.users} against {difference.others} users)",
    )


def _unhealthy(settings: Settings, health: Health, weights: Sums) -> str | None:
    rules = settings.canary
    if health.decisions >= _FEWEST_DECISIONS:
        failed = health.failed / health.decisions
        if failed > rules.error_rate:
            return f"{failed:.1%} of its decisions failed; {rules.error_rate:.1%} are allowed"
        slow = 1000 * health.seconds / health.decisions
        if slow > rules.latency_ms:
            return f"a decision takes {slow:.0f} ms on average; {rules.latency_ms:.0f} are allowed"
    if weights.n >= _FEWEST_DECISIONS:
        error = math.sqrt(weights.variance / weights.n)
        away = abs(weights.mean - 1)
        if away > rules.weight and away > 5 * error:
            return f"its mean importance weight is {weights.mean:.2f} and not 1: its propensities are wrong"
    return None


def _by(difference: Difference) -> str:
    return f"{abs(difference.estimate):.4g} {'more' if difference.estimate >= 0 else 'less'}"


def _progress(monitor: Monitor, canary: Canary, wanted: int) -> str:
    assert monitor.canary is not None
    users, others = monitor.canary.users_in(canary.stage)
    return (
        f"{users} and {others} users of canary and champion have known rewards in this stage, of {wanted}; "
        f"{monitor.canary.waiting} are under way"
    )


def applied(control: Control, ruling: Ruling, now: int) -> Control:
    """The state after a ruling."""
    if ruling.move == "roll back":
        return control.rolled_back(ruling.why, now)
    if ruling.move == "next stage":
        return control.next_stage(ruling.why, now)
    return control.promoted(ruling.why, now) if ruling.move == "promote" else control
