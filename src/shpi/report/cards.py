"""HTML cards that notebooks show for shpi's objects, readable on light and on dark pages.

Notebooks have their own colours: text and lines take the page's; only verdicts and severities have colours.
Text that comes from users is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shpi.protocols import Policy
from shpi.report.estimators import about, mark
from shpi.report.numbers import count, level, number, percent, signed
from shpi.report.page import esc

if TYPE_CHECKING:
    from shpi.data.audit import AuditReport
    from shpi.data.logged import LoggedData
    from shpi.learners.improved import ImprovedPolicy
    from shpi.ope.candidates import Comparison
    from shpi.ope.results import Evaluation

MANY = 12  # most rows of a card
_BOX = (
    "border:1px solid rgba(128,128,128,.4);border-radius:8px;padding:10px 14px;max-width:760px;"
    "font-family:system-ui,sans-serif;font-size:14px;line-height:1.45;overflow-x:auto"
)
_CELL = "text-align:left;padding:2px 14px 2px 0;vertical-align:top;border:0;background:none;color:inherit"
_COLOURS = {"ship": "#1a7f4b", "fit": "#1a7f4b", "hold": "#c23b2e", "unfit": "#c23b2e", "error": "#c23b2e"}
_AMBER = "#b26a00"


def log_card(logs: LoggedData) -> str:
    """The card of a log: its size, its parts, its metric."""
    names = [feature.name for feature in logs.schema.features]
    facts = [
        (
            "decisions",
            f"{count(len(logs))} of {count(logs.n_users)} users in {count(logs.n_sessions)} sessions",
        ),
        ("items", f"{count(logs.n_actions)}: {_some(logs.action_space.ids)}"),
        ("context", f"{logs.schema.width} dimensions of {_some(names) or 'no column'}"),
        (
            "reward",
            "none" if logs.rewards is None else f"mean {number(float(logs.rewards.mean()))} per decision",
        ),
        ("propensities", esc(logs.propensity_mode)),
        ("question", esc(logs.question)),
    ]
    dropped = logs.ledger.rows_dropped
    facts += [("dropped", f"{count(dropped)} of {count(logs.ledger.rows_in)} rows")] if dropped else []
    return _card("Log", "", _facts(facts))


def audit_card(report: AuditReport) -> str:
    """The card of an audit: the verdict, then the findings, the worst first."""
    word = "fit" if report.fit else "unfit"
    rows = [
        (_word(finding.severity), f"<code>{esc(finding.code)}</code>", esc(finding.message, 600))
        for finding in report.findings[:MANY]
    ]
    more = len(report.findings) - MANY
    body = _table(rows) if rows else "<p>Nothing was found.</p>"
    return _card(
        "Audit",
        _word(word, f"{word} for learning"),
        body + (f"<p>… and {more} more.</p>" if more > 0 else ""),
    )


def policy_card(policy: Policy, kind: str) -> str:
    """The card of a policy: its kind, its actions, and its features."""
    return _card("Policy", "", _policy_facts(policy, kind))


def improved_card(policy: ImprovedPolicy, kind: str) -> str:
    """The card of a policy that was tested while it was learned, with the results of the test."""
    said = _word("ship", "proven better than the logging policy") if policy.proven else _word("", "unproven")
    rows = [("candidate", "lift", "at least", "")] if policy.trials else []
    rows += [
        (
            esc(trial.words),
            signed(trial.lift.estimate),
            signed(trial.lift.lower),
            "returned" if trial.returned else "",
        )
        for trial in policy.trials[-MANY:]
    ]
    notes = "".join(f"<p>{esc(note)}</p>" for note in policy.notes)
    return _card("Policy", said, _policy_facts(policy, kind) + _table(rows, head=bool(rows)) + notes)


def _policy_facts(policy: Policy, kind: str) -> str:
    items: Any = getattr(policy, "items", None)
    facts = [("kind", esc(kind))]
    if items is not None and items.actions is not None:
        facts.append(("items", _some(items.actions.ids)))
    if items is not None and items.schema is not None:
        facts.append(("looks at", _some([feature.name for feature in items.schema.features]) or "nothing"))
    return _facts(facts)


def evaluation_card(evaluation: Evaluation) -> str:
    """The card of an evaluation: the verdict with its reasons, then every estimator with its mark."""
    reasons = () if evaluation.verdict is None else evaluation.verdict.reasons
    listed = "".join(f"<li>{esc(reason)}</li>" for reason in reasons[:MANY])
    sure = level(evaluation.decisive.lift_interval.level)
    rows = [("estimator", "lift", f"{sure} interval", "eff. users", "")]
    rows += [
        (
            f'<span title="{esc(about(evaluation, estimate.name).full)}">{esc(estimate.name, 60)}</span>',
            signed(estimate.lift),
            f"{signed(estimate.lift_interval.lower)} … {signed(estimate.lift_interval.upper)}",
            count(estimate.effective_users),
            mark(evaluation, estimate),
        )
        for estimate in (evaluation.decisive, *(e for e in evaluation.estimates if e.name != evaluation.main))
    ]
    asked = esc(evaluation.question or evaluation.metric, 600)
    size = (
        f"{count(evaluation.users)} users; the logging policy brought {number(evaluation.decisive.baseline)}"
    )
    mixed = "" if evaluation.mixture is None else f"<p>{esc(evaluation.mixture.sentence())}</p>"
    lead = f"<p>{asked} {size}.</p>{mixed}" + (f"<ul style='margin:4px 0'>{listed}</ul>" if listed else "")
    end = '<p><code>evaluation.write_html("report.html")</code> has the rest.</p>'
    return _card(
        esc(evaluation.policy_name, 80),
        _verdict(evaluation),
        lead + _table(rows[: MANY + 1], head=True) + end,
    )


def comparison_card(comparison: Comparison) -> str:
    """The card of several candidates, one row each."""
    rows = [("candidate", "verdict", "lift", "interval", "in %")]
    for evaluation in comparison.evaluations[:MANY]:
        best = evaluation.lead.estimate
        share = best.lift / abs(best.baseline) if best.baseline else None
        span = f"{signed(best.lift_interval.lower)} … {signed(best.lift_interval.upper)}"
        shown = percent(share, 2, sign=True)
        rows.append((esc(evaluation.policy_name, 60), _verdict(evaluation), signed(best.lift), span, shown))
    return _card("Candidates", f"best to ship: {esc(comparison.best or 'none', 80)}", _table(rows, head=True))


# ---------------------------------------------------------------------- pieces


def _card(title: str, said: str, body: str) -> str:
    head = f"<b style='font-size:16px'>{title}</b>" + (f" &nbsp; {said}" if said else "")
    return f'<div style="{_BOX}"><div>{head}</div>{body}</div>'


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    return _table([(f"<span style='opacity:.65'>{name}</span>", words) for name, words in facts])


def _table(rows: Sequence[Sequence[str]], *, head: bool = False) -> str:
    if not rows:
        return ""
    lines = []
    for index, row in enumerate(rows):
        dim = ";opacity:.65;font-weight:600" if head and index == 0 else ""
        lines.append(
            "<tr style='background:none'>"
            + "".join(f'<td style="{_CELL}{dim}">{c}</td>' for c in row)
            + "</tr>"
        )
    return f'<table style="border-collapse:collapse;margin:6px 0;border:0">{"".join(lines)}</table>'


def _word(kind: str, words: str | None = None) -> str:
    """A word in its colour; the word also carries the meaning by itself."""
    colour = _COLOURS.get(kind, _AMBER)
    return f'<b style="color:{colour}">{esc(kind if words is None else words)}</b>'


def _verdict(evaluation: Evaluation) -> str:
    decision = "no verdict" if evaluation.verdict is None else evaluation.verdict.decision
    return _word(decision)


def _some(names: Sequence[object], most: int = 8) -> str:
    shown = ", ".join(esc(name, 40) for name in names[:most])
    return shown + (f", … ({len(names)} in all)" if len(names) > most else "")
