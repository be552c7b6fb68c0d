"""Where the lift comes from: segments of users, actions gained and lost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from shpi.report import svg
from shpi.report.numbers import count, level, number, percent, signed
from shpi.report.page import Section, esc, figure, folded, table

if TYPE_CHECKING:
    from shpi.ope.results import ActionShift, Evaluation

MANY_SEGMENTS, MANY_ACTIONS = 16, 16  # most segments and actions shown


def origin(evaluation: Evaluation) -> Section | None:
    """The lift by segment and by action; None if neither is known."""
    parts = [_segments(evaluation), _actions(evaluation.actions_gained_lost)]
    if not any(parts):
        return None
    return Section(
        key="origin",
        title="Where the lift comes from",
        how="The same lift for parts of the users, and what the policy does differently; wide intervals that "
        "cross 0 are no evidence of a difference.",
        body="".join(parts),
    )


def _segments(evaluation: Evaluation) -> str:
    everyone = evaluation.segments
    if not everyone:
        return ""
    largest = sorted(range(len(everyone)), key=lambda i: -everyone[i].users)[:MANY_SEGMENTS]
    shown = [everyone[i] for i in sorted(largest)]
    labels = [f"{segment.column}: {segment.label}" for segment in shown]
    sure = level(shown[0].interval.level)
    chart = partial(
        svg.forest,
        labels,
        [segment.lift for segment in shown],
        [segment.interval.lower for segment in shown],
        [segment.interval.upper for segment in shown],
        texts=[f"{signed(segment.lift)}  ({count(segment.users)} users)" for segment in shown],
        short_texts=[signed(segment.lift) for segment in shown],
        names=svg.ForestNames(row=f"lift, {sure} interval"),
        title="Lift by segment of users",
        description=f"The lift of {len(shown)} segments of users, by their first context.",
        x_label="lift",
    )
    rows = [
        [
            esc(label, 120),
            count(segment.users),
            number(segment.baseline),
            signed(segment.lift),
            f"{signed(segment.interval.lower)} … {signed(segment.interval.upper)}",
        ]
        for label, segment in zip(labels, shown, strict=True)
    ]
    head = ["segment", "users", "logging policy", "lift", "interval"]
    cut = ""
    if len(everyone) > len(shown):
        cut = f" Shown are the {len(shown)} of {count(len(everyone))} segments with the most users."
    return (
        f"<h3>Users</h3><p>By each user's first context. The intervals are not corrected for the number of "
        f"segments: among {count(len(everyone))} some may stand out by chance.{cut}</p>{figure(chart)}"
        + folded("The numbers", table(head, rows, caption="Segments", numbers=(1, 2, 3, 4)))
    )


def _actions(everyone: Sequence[ActionShift]) -> str:
    changed = sorted(
        (shift for shift in everyone if abs(shift.change) > 1e-9), key=lambda shift: -abs(shift.change)
    )
    if not everyone:
        return ""
    if not changed:
        return "<h3>Actions</h3><p>No action is chosen more or less often than in the log.</p>"
    shown = sorted(changed[:MANY_ACTIONS], key=lambda shift: -shift.change)
    cut = ""
    if len(changed) > len(shown):
        cut = f" Shown are the {len(shown)} of {count(len(changed))} actions listed with the largest changes."
    chart = partial(
        svg.bars,
        [shift.action for shift in shown],
        {"change": [100 * shift.change for shift in shown]},
        by_sign=True,
        show=lambda value: signed(value, 2),
        title="Actions gained and lost",
        description=f"{shown[0].action} gains most, {shown[-1].action} loses most.",
        x_label="change of its share, percentage points",
    )
    rows = [
        [
            esc(shift.action, 120),
            percent(shift.logged),
            percent(shift.policy),
            signed(100 * shift.change, 2),
            number(shift.reward),
        ]
        for shift in shown
    ]
    head = ["action", "in the log", "this policy", "change, points", "reward when logged"]
    return (
        "<h3>Actions</h3><p>Which actions this policy chooses more often (to the right) and less often "
        f"(to the left), in the contexts of the log.{cut}</p>{figure(chart)}"
        + folded("The numbers", table(head, rows, caption="Actions gained and lost", numbers=(1, 2, 3, 4)))
    )
