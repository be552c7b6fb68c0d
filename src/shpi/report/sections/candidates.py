"""Several candidates side by side: verdicts, lifts, and bounds that hold for all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from shpi.report import svg
from shpi.report.numbers import count, level, number, percent, signed
from shpi.report.page import Section, esc, figure, sign, table
from shpi.report.sections.verdict import KINDS, relative

if TYPE_CHECKING:
    from shpi.ope.candidates import Comparison
    from shpi.ope.results import Evaluation


def header(comparison: Comparison) -> str:
    """One sentence on which candidates can be shipped."""
    first = comparison.evaluations[0]
    steps = [
        evaluation.policy_name for evaluation in comparison.evaluations if _word(evaluation) == "first step"
    ]
    if comparison.best is not None:
        kind, word = "ship", f"Ship {comparison.best}"
        lead = "It has the largest proven lift of those that may be shipped."
    elif steps:
        kind, word = "step", "First step"
        lead = f"None is proven as a whole; in part of the traffic: {esc(', '.join(steps))}."
    else:
        kind, word = "hold", "Ship none"
        lead = "No candidate is proven to be better; each has its verdict below."
    size = f"{count(first.users)} users, {count(first.decisions)} decisions"
    return (
        f'<p class="kicker">Off-policy evaluation</p><h1>{len(comparison.evaluations)} candidates</h1>'
        f'<p class="soft">{esc(question(first))} · judged from a log of {size}</p>'
        f'<div class="verdict {kind}" role="region" aria-label="Verdict"><p class="word">{sign(kind, 30)}'
        f'<span>{esc(word, 120)}</span></p><p class="lead">{lead}</p></div>'
    )


def question(evaluation: Evaluation) -> str:
    """The metric, in words if the evaluation has them."""
    return evaluation.question or evaluation.metric


def side_by_side(evaluations: Sequence[Evaluation]) -> Section:
    """A table with one row per candidate."""
    sure = level(evaluations[0].decisive.lift_interval.level)
    lifts = [signed(evaluation.lead.estimate.lift) for evaluation in evaluations]
    intervals = [evaluation.lead.estimate.lift_interval for evaluation in evaluations]
    chart = partial(
        svg.forest,
        [evaluation.policy_name for evaluation in evaluations],
        [evaluation.lead.estimate.lift for evaluation in evaluations],
        [interval.lower for interval in intervals],
        [interval.upper for interval in intervals],
        faint=[
            evaluation.verdict is not None and evaluation.verdict.decision == "hold"
            for evaluation in evaluations
        ],
        texts=[f"{lift}  {_word(evaluation)}" for lift, evaluation in zip(lifts, evaluations, strict=True)],
        short_texts=lifts,
        names=svg.ForestNames(row=f"lift, {sure} interval", faint="hold"),
        title="Lift of every candidate with its interval",
        description="; ".join(
            f"{evaluation.policy_name}: {lift}" for lift, evaluation in zip(lifts, evaluations, strict=True)
        ),
        x_label=f"lift: {evaluations[0].metric}",
    )
    head = ["candidate", "verdict", "lift", "in %", "interval", "eff. users", "decided by"]
    rows = [_row(number_of, evaluation) for number_of, evaluation in enumerate(evaluations)]
    return Section(
        key="candidates",
        title="The candidates side by side",
        how="All were judged on the same users against the same logging policy. The verdicts' bounds "
        "are wider "
        "than for one candidate alone, so that all of them hold together: the best of many looks better "
        "than it is. A lift is over the whole horizon; where the log supports it only for a share of a "
        "policy's decisions, the last column gives that share.",
        body=figure(chart) + table(head, rows, caption="Candidates", numbers=(2, 3, 4, 5)),
    )


def _row(number_of: int, evaluation: Evaluation) -> list[str]:
    best = evaluation.lead.estimate
    return [
        f'<a href="#c{number_of}">{esc(evaluation.policy_name, 80)}</a>',
        f'<span class="badge {_badge(evaluation)}">{_word(evaluation)}</span>',
        signed(best.lift),
        percent(relative(best.lift, best.baseline), 2, sign=True),
        f"{signed(best.lift_interval.lower)} … {signed(best.lift_interval.upper)}",
        count(best.effective_users),
        esc(best.name, 60) + f" ({number(best.baseline)} → {number(best.value)})",
    ]


def _word(evaluation: Evaluation) -> str:
    return "no verdict" if evaluation.verdict is None else evaluation.verdict.decision


def _badge(evaluation: Evaluation) -> str:
    kind = KINDS.get(_word(evaluation), "none")
    return {"ship": "fine", "hold": "fatal", "more": "warning", "step": "note"}.get(kind, "note")
