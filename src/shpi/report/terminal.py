"""An evaluation as a table for the terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shpi.ope.results import Estimate, Evaluation, Verdict

_HEAD = ("estimator", "value", "lift", "lift, two-sided", "lift at least", "eff. users")
_WIDTH = 100  # characters per line


def render(evaluation: Evaluation, *, verdict_first: bool = False) -> str:
    """The question, the verdict, the estimates, and all diagnostics that are not fine, in this order.

    Args:
        evaluation: the evaluation to show.
        verdict_first: put the verdict on top.
    """
    question = [
        f"{evaluation.policy_name}: {evaluation.metric}",
        *_wrapped([evaluation.question] if evaluation.question else [], ""),
        f"{evaluation.users:,} users, {evaluation.decisions:,} decisions, "
        f"log {evaluation.fingerprint or 'unnamed'}; "
        f"the logging policy brought {evaluation.decisive.baseline:.5g}",
    ]
    decided: list[str] = []
    if (verdict := evaluation.verdict) is not None:
        needed = [] if verdict.users_needed is None else [needed_words(verdict)]
        decided = [f"VERDICT: {verdict.decision.upper()}", *_wrapped([*verdict.reasons, *needed], "  ")]
    problems: list[str] = []  # sentences on the log and the estimator that decides
    others: dict[str, list[str]] = {}  # the other estimators that failed each check
    for check in evaluation.diagnostics:
        if check.severity != "fine" and check.estimator in (None, evaluation.main):
            problems.append(f"{check.severity}: {check.sentence}")
        elif check.severity != "fine":
            others.setdefault(f"{check.severity}, {check.name}", []).append(str(check.estimator))
    lines = _wrapped([f"{check}: {', '.join(dict.fromkeys(those))}" for check, those in others.items()], "")
    head = "estimators that do not decide (whole sentences: the report, or evaluation.diagnostics)"
    first = [decided, question] if verdict_first else [question, decided]
    blocks = [*first, _estimates(evaluation), _wrapped(problems, ""), [head, *lines] if lines else []]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _estimates(evaluation: Evaluation) -> list[str]:
    from shpi.report.estimators import may_be_biased

    signs = [
        " *" if estimate.name == evaluation.main else " ~" if may_be_biased(evaluation, estimate) else ""
        for estimate in evaluation.estimates
    ]
    rows = [_HEAD, *map(_row, evaluation.estimates, signs)]
    if evaluation.mixture is not None:
        rows.append(_row(evaluation.mixture.estimate, " +"))
    if evaluation.short_term is not None:
        rows.append(_row(evaluation.short_term, ""))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = []
    for number, row in enumerate(rows):
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append("  ".join(cells).rstrip())
        if number == 0:
            lines.append("-" * len(lines[-1]))
    lines.append(
        f"* decides; intervals at {evaluation.decisive.lift_interval.level:.0%}, users are the clusters"
    )
    if evaluation.mixture is not None:
        lines.append(
            "+ leads: the largest mixture with an interval over the whole horizon; the policy has none"
        )
    if " ~" in signs:
        lines.append("~ may be biased: rests on a model, or follows the policy for some decisions only")
    return lines


def needed_words(verdict: Verdict) -> str:
    """A sentence on how many users would be needed, as a range, and what it depends on."""
    if not verdict.users_prove:
        return (
            f"About {verdict.users_needed:,} users in all would be needed to judge it at all; how many would "
            "prove a lift is not known yet."
        )
    about = f"About {verdict.users_needed:,} users in all would be needed to decide"
    if verdict.users_range is None or verdict.users_range[0] == verdict.users_range[1]:
        return f"{about}."
    least, most = verdict.users_range
    if (
        least == verdict.users_needed and most is not None
    ):  # what the importance weights need, whatever the lift
        return f"{least:,} to {most:,} users in all would be needed to decide."
    upper = "no number would do" if most is None else f"{most:,}"
    above = f"{least:,} if the lift is one standard error above its estimate"
    return f"{about}: {above}, {upper} if it is one below."


def _row(estimate: Estimate, sign: str) -> tuple[str, ...]:
    interval = estimate.lift_interval
    return (
        estimate.name + sign,
        f"{estimate.value:.5g}",
        f"{estimate.lift:+.5g}",
        f"{interval.lower:+.4g} … {interval.upper:+.4g}",
        f"{interval.lower_bound:+.4g}",
        f"{estimate.effective_users:,.0f}",
    )


def _wrapped(sentences: tuple[str, ...] | list[str], indent: str) -> list[str]:
    lines: list[str] = []
    for sentence in sentences:
        lines += textwrap.wrap(
            sentence, _WIDTH, initial_indent=f"{indent}- ", subsequent_indent=f"{indent}  "
        )
    return lines
