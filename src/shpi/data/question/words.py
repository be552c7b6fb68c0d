"""The metric of a log in words, printed by every command that uses it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shpi.data.question.metric import Metric

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData


def question(logs: LoggedData, metric: Metric | None = None) -> str:
    """One sentence: what is counted, over which time, and how users who are not seen again are treated.

    Args:
        logs: the log.
        metric: what is counted, if it is not the log's reward.
    """
    if logs.counted is None:
        counted = (metric or Metric()).words()
    else:  # another outcome is counted in the same window
        own = logs.counted.metric
        same = own if metric is None else replace(own, what=metric.what, within=None)
        counted = replace(logs.counted, metric=same).words()
    text = counted[:1].upper() + counted[1:]
    if logs.endings == "by window":
        return f"{text}."
    stays = ~logs.terminated
    if logs.endings == "unknown":
        return f"{text}; the log does not say how users end, so unlogged rewards count as 0."
    if logs.endings == "by churn_after":
        return (
            f"{text}; users who were silent for longer than churn_after have left, and {stays.mean():.0%} of "
            "the trajectories are censored by the end of the log, and weighted for it."
        )
    if not stays.any():
        return f"{text}; all users are marked as gone after their last decision."
    return (
        f"{text}; {logs.terminated.mean():.0%} of the trajectories are marked as left for good, the others "
        "are censored where the log ends."
    )
