"""Short-term against long-term effect, and the three factors of a user's total reward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from shpi.report import svg
from shpi.report.numbers import number, percent, signed
from shpi.report.page import Section, esc, figure, folded, table, tile
from shpi.report.sections.verdict import relative

if TYPE_CHECKING:
    from shpi.ope.results import Estimate, Evaluation, Factor


def now_and_later(evaluation: Evaluation) -> Section | None:
    """The short-term effect beside the long-term one; None if it is unknown."""
    short = evaluation.short_term
    if short is None:
        return None
    long = evaluation.decisive
    pair = (("next reward", short), ("all that follows", long))
    now, later = (
        "better" if interval.lower > 0 else "worse" if interval.upper < 0 else "not proven to be different"
        for interval in (short.lift_interval, long.lift_interval)
    )
    said = (
        f"On the next reward and in the long run the policy is <b>{now}</b>."
        if now == later
        else f"On the next reward the policy is <b>{now}</b>; in the long run it is <b>{later}</b>."
    )
    rows = [
        [
            esc(f"{name} ({estimate.name})", 80),
            number(estimate.baseline),
            number(estimate.value),
            signed(estimate.lift),
            f"{signed(estimate.lift_interval.lower)} … {signed(estimate.lift_interval.upper)}",
        ]
        for name, estimate in pair
    ]
    head = ["", "logging policy", "this policy", "lift", "interval"]
    numbers = table(head, rows, caption="Short-term and long-term", numbers=(1, 2, 3, 4)) + (
        '<p class="soft">The next reward is per decision; the other row is in the unit of the metric. '
        "The intervals of the percentages leave out the error of the logging policy's own mean.</p>"
    )
    return Section(
        key="terms",
        title="Short-term against long-term",
        how="Upper row: every decision judged by its next reward alone, as a bandit would. Lower row: by "
        "everything that follows. Where the two differ, the policy changes what happens later: users "
        "who come back, or who do not.",
        body=f"<p>{said}</p>{_relative(pair)}{folded('The numbers', numbers)}",
    )


def _relative(pair: Sequence[tuple[str, Estimate]]) -> str:
    """Both lifts relative to the logging policy's values, since their units differ."""
    sizes = [abs(estimate.baseline) for _, estimate in pair]
    if any(relative(estimate.lift, estimate.baseline) is None for _, estimate in pair):
        return "<p>The logging policy brought next to nothing: changes in % mean little. See the numbers.</p>"
    lifts = [100 * estimate.lift / size for (_, estimate), size in zip(pair, sizes, strict=True)]
    edges = [
        (100 * estimate.lift_interval.lower / size, 100 * estimate.lift_interval.upper / size)
        for (_, estimate), size in zip(pair, sizes, strict=True)
    ]
    texts = [percent(lift / 100, 2, sign=True) for lift in lifts]
    chart = partial(
        svg.forest,
        [name for name, _ in pair],
        lifts,
        [low for low, _ in edges],
        [high for _, high in edges],
        texts=texts,
        main=1,
        names=svg.ForestNames(row="short-term", main="long-term"),
        title="Short-term and long-term lift",
        description=f"Next reward {texts[0]}, all that follows {texts[1]}.",
        x_label="lift in % of what the logging policy brought",
    )
    return figure(chart)


def factors(evaluation: Evaluation) -> Section | None:
    """Reward per recommendation × recommendations per session × sessions per period."""
    terms = evaluation.decomposition
    if not terms:
        return None
    pieces = '<i aria-label="times">×</i>'.join(
        tile(_change(factor), f"{esc(factor.name)}<br>{number(factor.baseline)} → {number(factor.value)}")
        for factor in terms
    )
    before, after = (math.prod(getattr(factor, key) for factor in terms) for key in ("baseline", "value"))
    rows = [
        [esc(factor.name), number(factor.baseline), number(factor.value), _change(factor)] for factor in terms
    ]
    total = replace(terms[0], name="product", baseline=before, value=after)
    rows.append(["<b>product</b>", number(before), number(after), _change(total)])
    head = ["factor", "logging policy", "this policy", "change"]
    changes = [relative(factor.value - factor.baseline, factor.baseline) for factor in (*terms, total)]
    known = [100 * change for change in changes if change is not None]
    chart = partial(
        svg.bars,
        [*(factor.name for factor in terms), "together"],
        {"change": known},
        by_sign=True,
        show=lambda value: signed(value, 2),
        title="Change of the three factors and of their product",
        description="; ".join(f"{factor.name} {_change(factor)}" for factor in (*terms, total)),
        x_label="change in %",
    )
    return Section(
        key="factors",
        title="Three factors of the reward",
        how="A user's reward is the reward per recommendation, times recommendations per session, times "
        "sessions. A policy can win by better items, by longer sessions, or by users who come back.",
        body=f'<div class="factors">{pieces}</div>'
        + (figure(chart) if len(known) == len(changes) else "")
        + folded("The numbers", table(head, rows, caption="Three factors", numbers=(1, 2, 3)))
        + '<p class="soft">Undiscounted, by the estimator that decides. These are point '
        "estimates without intervals.</p>",
    )


def _change(factor: Factor) -> str:
    share = relative(factor.value - factor.baseline, factor.baseline)
    return percent(share, 2, sign=True) if share is not None else signed(factor.value - factor.baseline)
