"""Now against later, and the three factors of what a user brings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shpi.report import svg
from shpi.report.numbers import number, percent, signed
from shpi.report.page import Section, esc, figure, folded, table, tile
from shpi.report.sections.verdict import relative

if TYPE_CHECKING:
    from shpi.ope.results import Estimate, Evaluation, Factor


def now_and_later(evaluation: Evaluation) -> Section | None:
    """The short-term effect beside the long-term one; None where it is not known."""
    short = evaluation.short_term
    if short is None:
        return None
    long = evaluation.decisive
    pair = (("next reward", short), ("all that follows", long))
    return Section(
        key="terms",
        title="Short-term against long-term",
        how="Upper row: every decision judged by its next reward alone, as a bandit would. Lower row: by "
        "everything that follows. Where the two differ, the policy changes what happens later: users "
        "who come back, or who do not.",
        body=f"<p>{_sentence(short, long)}</p>{_relative(pair)}{folded('The numbers', _numbers(pair))}",
    )


def _sentence(short: Estimate, long: Estimate) -> str:
    def said(one: Estimate) -> str:
        if one.lift_interval.lower > 0:
            return "better"
        return "worse" if one.lift_interval.upper < 0 else "not proven to be different"

    now, later = said(short), said(long)
    if now == later:
        return f"On the next reward and in the long run the policy is <b>{now}</b>."
    return f"On the next reward the policy is <b>{now}</b>; in the long run it is <b>{later}</b>."


def _relative(pair: Sequence[tuple[str, Estimate]]) -> str:
    """Both as shares of what the logging policy brought: they have different units otherwise."""
    sizes = [abs(one.baseline) for _, one in pair]
    if any(relative(one.lift, one.baseline) is None for _, one in pair):
        return "<p>The logging policy brought next to nothing: changes in % say nothing. See the numbers.</p>"

    def draw(width: float) -> str:
        lifts = [100 * one.lift / size for (_, one), size in zip(pair, sizes, strict=True)]
        edges = [
            (100 * one.lift_interval.lower / size, 100 * one.lift_interval.upper / size)
            for (_, one), size in zip(pair, sizes, strict=True)
        ]
        texts = [percent(lift / 100, 2, sign=True) for lift in lifts]
        return svg.forest(
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
            width=width,
        )

    return figure(draw)


def _numbers(pair: Sequence[tuple[str, Estimate]]) -> str:
    rows = [
        [
            esc(f"{name} ({one.name})", 80),
            number(one.baseline),
            number(one.value),
            signed(one.lift),
            f"{signed(one.lift_interval.lower)} … {signed(one.lift_interval.upper)}",
        ]
        for name, one in pair
    ]
    head = ["", "logging policy", "this policy", "lift", "interval"]
    return table(head, rows, caption="Short-term and long-term", numbers=(1, 2, 3, 4)) + (
        '<p class="soft">The next reward is per decision; the other row is in the unit of the metric. '
        "The intervals of the percentages leave out the error of the logging policy's own mean.</p>"
    )


def factors(evaluation: Evaluation) -> Section | None:
    """Reward per recommendation × recommendations per session × sessions per period."""
    found = evaluation.decomposition
    if not found:
        return None
    pieces = '<i aria-label="times">×</i>'.join(_tile(one) for one in found)
    before, after = (math.prod(getattr(one, key) for one in found) for key in ("baseline", "value"))
    rows = [[esc(one.name), number(one.baseline), number(one.value), _change(one)] for one in found]
    total = replace(found[0], name="product", baseline=before, value=after)
    rows.append(["<b>product</b>", number(before), number(after), _change(total)])
    head = ["factor", "logging policy", "this policy", "change"]
    return Section(
        key="factors",
        title="Three factors of the reward",
        how="What a user brings is the reward per recommendation, times recommendations per session, times "
        "sessions. A policy can win by better items, by longer sessions, or by users who come back.",
        body=f'<div class="factors">{pieces}</div>{_bars(found, total)}'
        + folded("The numbers", table(head, rows, caption="Three factors", numbers=(1, 2, 3)))
        + '<p class="soft">Undiscounted, by the estimator that decides. These are point '
        "estimates without intervals.</p>",
    )


def _tile(one: Factor) -> str:
    return tile(_change(one), f"{esc(one.name)}<br>{number(one.baseline)} → {number(one.value)}")


def _change(one: Factor) -> str:
    share = relative(one.value - one.baseline, one.baseline)
    return percent(share, 2, sign=True) if share is not None else signed(one.value - one.baseline)


def _bars(found: Sequence[Factor], total: Factor) -> str:
    changes = [relative(one.value - one.baseline, one.baseline) for one in (*found, total)]
    known = [change for change in changes if change is not None]
    if len(known) < len(changes):
        return ""

    def draw(width: float) -> str:
        return svg.bars(
            [*(one.name for one in found), "together"],
            {"change": [100 * one for one in known]},
            by_sign=True,
            show=lambda value: signed(value, 2),
            title="Change of the three factors and of their product",
            description="; ".join(f"{one.name} {_change(one)}" for one in (*found, total)),
            x_label="change in %",
            width=width,
        )

    return figure(draw)
