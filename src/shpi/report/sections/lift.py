"""Every estimator's answer: a forest plot and its numbers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shpi.report import svg
from shpi.report.estimators import about, mark, may_be_biased
from shpi.report.numbers import count, level, number, signed
from shpi.report.page import Section, esc, figure, folded, table

if TYPE_CHECKING:
    from shpi.ope.results import Estimate, Evaluation

MANY = 30  # most estimators shown, and most notes
_BADGES = {"decides": "note", "agrees": "fine", "may be biased": "calm"}  # CSS class of a role in the verdict


def lift(evaluation: Evaluation) -> Section:
    """The forest plot of all estimators."""
    # The estimate that decides, then those without a model, then those with one.
    others = [estimate for estimate in evaluation.estimates if estimate.name != evaluation.main]
    ordered = [evaluation.decisive, *sorted(others, key=lambda estimate: may_be_biased(evaluation, estimate))]
    shown, left_out = ordered[:MANY], len(ordered) - MANY
    sure = level(evaluation.decisive.lift_interval.level)
    failed = {check.estimator for check in evaluation.diagnostics if check.severity == "fatal"} - {None}
    explained = []
    for estimate in shown:
        said, known = mark(evaluation, estimate), about(evaluation, estimate.name)
        name = f"<b>{esc(estimate.name, 80)}</b><br>{esc(known.full)}"
        badge = f'<span class="badge {_BADGES.get(said, "warning")}">{said}</span>'
        explained.append([name, badge, esc(known.sentence)])
    return Section(
        key="lift",
        title="Lift over the logging policy",
        how="Each row is one way to estimate the same number: how much more the policy would earn than "
        f"the logging policy did. Right of 0 is better; the line is a {sure} interval. "
        f"<b>{esc(evaluation.main)}</b> decides"
        + ("; the others show whether the answer depends on the method." if len(shown) > 1 else ".")
        + (
            " Round signs may be biased: they rest on a model."
            if any(may_be_biased(evaluation, each) for each in shown)
            else ""
        )
        + (" Hollow rows failed a check: do not rely on them." if failed else "")
        + ("" if evaluation.mixture is None else f" {esc(evaluation.mixture.sentence())}"),
        body=_forest(evaluation, shown, failed)
        + (f'<p class="soft">{left_out} further estimators are not shown.</p>' if left_out > 0 else "")
        + "<h3>What each of them is</h3>"
        + table(["estimator", "", "what it does"], explained, caption="Estimators in words")
        + folded("The numbers", _numbers(evaluation, shown)),
    )


def _forest(evaluation: Evaluation, shown: list[Estimate], failed: set[str | None]) -> str:
    main, sure = evaluation.decisive, level(evaluation.decisive.lift_interval.level)
    intervals = [estimate.lift_interval for estimate in shown]
    lifts = [signed(estimate.lift) for estimate in shown]
    chart = partial(
        svg.forest,
        [estimate.name for estimate in shown],
        [estimate.lift for estimate in shown],
        [interval.lower for interval in intervals],
        [interval.upper for interval in intervals],
        main=0,
        round=[may_be_biased(evaluation, estimate) for estimate in shown],
        texts=[
            f"{lift}  [{signed(interval.lower)}, {signed(interval.upper)}]"
            for lift, interval in zip(lifts, intervals, strict=True)
        ],
        short_texts=lifts,
        faint=[estimate.name in failed for estimate in shown],
        names=svg.ForestNames(
            row=f"estimate, {sure} interval", round="may be biased", faint="failed a check"
        ),
        title="Lift of every estimator with its interval",
        description=f"{main.name}, which decides, estimates a lift of {signed(main.lift)}, between "
        f"{signed(main.lift_interval.lower)} and {signed(main.lift_interval.upper)}.",
        x_label=f"lift: {evaluation.metric}",
    )
    return figure(chart)


def _numbers(evaluation: Evaluation, shown: list[Estimate]) -> str:
    """All numbers of the estimators, and what they assumed on the way."""
    head = ["estimator", "value", "lift", "std. error", "interval of the lift", "eff. users"]
    rows = [
        [
            esc(estimate.name, 80) + (" (decides)" if estimate.name == evaluation.main else ""),
            number(estimate.value),
            signed(estimate.lift),
            number(estimate.lift_error, 2),
            f"{signed(estimate.lift_interval.lower)} … {signed(estimate.lift_interval.upper)}",
            count(estimate.effective_users),
        ]
        for estimate in shown
    ]
    kinds = ", ".join(sorted({estimate.lift_interval.method for estimate in shown}))
    said = [(estimate.name, note) for estimate in shown for note in estimate.notes][:MANY]
    items = "".join(f"<li><b>{esc(name, 80)}</b>: {esc(note)}</li>" for name, note in said)
    return (
        table(head, rows, caption="All estimators", numbers=range(1, 6), main=0)
        + f'<p class="soft">Users are the independent units of every error. Intervals: {esc(kinds)}.</p>'
        + (f"<p>What was assumed on the way:</p><ul>{items}</ul>" if items else "")
    )
