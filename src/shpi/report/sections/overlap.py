"""Does the log support this policy? Overlap of the probabilities, importance weights, effective users."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from shpi.report import svg
from shpi.report.numbers import count, number, percent
from shpi.report.page import Section, figure, folded, table, tile

if TYPE_CHECKING:
    from shpi.ope.results import Evaluation, Histogram, Overlap

BINS = 41  # edges of the histogram of users
_FEW = 30  # with fewer effective users, weighted estimates are unreliable


def overlap(evaluation: Evaluation) -> Section:
    """Overlap and importance weights, as far as the evaluation has them."""
    measured, weights = evaluation.overlap, evaluation.decisive.weights
    parts = []
    if weights is not None:
        share = weights.ess / evaluation.users if evaluation.users else math.nan
        tiles = (
            tile(percent(share, 2), "of the users: effective sample size"),
            tile(number(weights.mean), "mean weight; should be near 1"),
            tile(number(weights.max), "largest weight of a user"),
            tile(percent(weights.top_share, 2), "of all weight is on 1 % of the users"),
        )
        parts.append(f'<div class="tiles">{"".join(tiles)}</div>')
    if measured is not None:
        parts += [_chances(measured), _ratios(measured)]
        parts += [_steps(measured)] if len(measured.steps) > 1 else []
    elif weights is None:
        parts.append("<p>There are no importance weights here: the estimates rest on models alone.</p>")
    parts.append(_users(evaluation))
    return Section(
        key="overlap",
        title="Overlap and weights",
        how="A log supports a policy only where both choose similar actions: the more the two shapes "
        "below agree, and the fewer users carry large weights, the more you can trust the numbers above.",
        body="".join(parts),
    )


def _chances(measured: Overlap) -> str:
    total = max(sum(measured.logged.counts), 1)
    both = np.asarray([measured.logged.counts, measured.policy.counts], dtype=np.float64)
    used = np.flatnonzero(both.any(axis=0))
    # Without the bins at the low end that are empty in both.
    first = max(0, min(int(used[0]) - 1 if len(used) else 0, both.shape[1] - 5))
    edges, (logged, policy) = np.asarray(measured.logged.edges[first:]), 100 * both[:, first:] / total
    series = {"logging policy": logged, "this policy": policy}
    chart = partial(
        svg.histogram,
        edges,
        series,
        log_x=True,
        title="How likely the logged actions are under both policies",
        description="Median probability of the logged action: "
        f"{_middle(measured.logged)} under the logging policy, "
        f"{_middle(measured.policy)} under this policy.",
        x_label="probability of the action that was logged",
        y_label="share of the decisions, in %",
        height=200,
    )
    rows = [
        [f"{number(low, 2)} to {number(high, 2)}", number(a, 2), number(b, 2)]
        for low, high, a, b in zip(edges[:-1], edges[1:], logged, policy, strict=True)
        if a or b
    ]
    caption = "<b>How likely was the logged action</b> under both policies?"
    if measured.never:
        share = percent(measured.never / total, 2)
        caption += f" In {share} of the decisions this policy would never take it; these are not drawn."
    heads = ["probability", "logging policy, %", "this policy, %"]
    return figure(chart, caption) + folded(
        "The numbers", table(heads, rows, caption="Probabilities", numbers=(1, 2))
    )


def _ratios(measured: Overlap) -> str:
    total = sum(measured.ratios.counts) + measured.never
    edges, counts = np.asarray(measured.ratios.edges), np.asarray(measured.ratios.counts, dtype=np.float64)
    # Without the empty bins at both ends; 1 stays inside.
    used = np.flatnonzero((counts > 0) | ((edges[:-1] <= 1.01) & (edges[1:] >= 0.99)))
    first, last = (int(used[0]), int(used[-1])) if len(used) else (0, -1)
    edges, counts = edges[first : last + 2], counts[first : last + 1]
    if not total or not len(counts):
        return ""
    shares = 100 * counts / total
    chart = partial(
        svg.histogram,
        edges,
        {"decisions": shares},
        title="Ratios of the probabilities of both policies",
        description="Shares of decisions by the ratio of the probabilities of the logged action.",
        log_x=True,
        marks={"equally likely": 1.0},
        x_label="ratio: this policy / logging policy",
        y_label="share of the decisions, in %",
        height=180,
    )
    caption = (
        "<b>How much does each decision count?</b> Right of the dashed line: decisions that this policy "
        "makes more often; each counts as more than one."
    )
    rows = [
        [f"{number(low, 2)} to {number(high, 2)}", number(share, 2)]
        for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True)
        if share
    ]
    return figure(chart, caption) + folded(
        "The numbers", table(["ratio", "decisions, %"], rows, caption="Ratios", numbers=(1,))
    )


def _steps(measured: Overlap) -> str:
    left = np.asarray(measured.effective_users)  # a logarithmic axis cannot show 0
    first, last = count(measured.effective_users[0]), count(measured.effective_users[-1])
    chart = partial(
        svg.lines,
        measured.steps,
        {"effective users": left},
        reference={f"{_FEW} users": float(_FEW)},
        log_y=True,
        title="Effective users left after so many decisions",
        description=f"From {first} at the first decision to {last} at decision {measured.steps[-1]}.",
        x_label="decisions of this policy in a row",
        y_label="effective users",
        height=200,
    )
    picks = sorted({int(place) for place in np.linspace(0, len(measured.steps) - 1, 12).round()})
    rows = [[count(measured.steps[i]), count(measured.effective_users[i])] for i in picks]
    caption = (
        "<b>How many decisions does the log support?</b> Importance products over trajectories degenerate: "
        f"{first} effective users at the first decision, {last} at the last. Estimators that look "
        "only k steps back, or use a model, do not depend on all of it."
    )
    return figure(chart, caption) + folded(
        "The numbers", table(["decision", "effective users"], rows, caption="Effective users", numbers=(0, 1))
    )


def _users(evaluation: Evaluation) -> str:
    """How much single users contribute to the lift."""
    moved = evaluation.decisive.influence_lift / max(len(evaluation.decisive.influence_lift), 1)
    moved = moved[np.isfinite(moved)]
    if len(moved) < 2 or not np.ptp(moved) > 0:
        return ""
    low, high = (float(end) for end in np.quantile(moved, [0.005, 0.995]))
    if not high > low:
        low, high = float(moved.min()), float(moved.max())
    edges = np.linspace(low, high, BINS)
    counts = np.histogram(np.clip(moved, low, high), edges)[0]
    largest = float(np.abs(moved).max())
    error = evaluation.decisive.lift_error
    against = f", {percent(largest / error, 2)} of its standard error" if error > 0 else ""
    chart = partial(
        svg.histogram,
        edges,
        {"users": counts},
        title="How far single users move the lift",
        description=f"No user moves it by more than {number(largest)}{against}.",
        marks={"no effect": 0.0},
        x_label="change of the lift due to one user",
        y_label="users",
        height=160,
    )
    caption = (
        "<b>Does it depend on a few users?</b> The user who moves the lift most moves it by "
        f"{number(largest)}{against}. The outermost 1 % are drawn at the ends."
    )
    return figure(chart, caption)


def _middle(histogram: Histogram) -> str:
    """The bin that holds the median."""
    total = np.cumsum(histogram.counts)
    if not len(total) or total[-1] == 0:
        return "unknown"
    j = int(np.searchsorted(total, total[-1] / 2))
    return f"{number(histogram.edges[j], 2)} to {number(histogram.edges[j + 1], 2)}"
