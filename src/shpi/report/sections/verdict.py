"""The head of the report: may I ship this, and the four numbers behind the answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from shpi.report.estimators import may_be_biased
from shpi.report.numbers import count, level, number, percent, signed
from shpi.report.page import badge, esc, sign, table, tile
from shpi.report.terminal import needed_words

if TYPE_CHECKING:
    from shpi.ope.results import Evaluation

MANY_REASONS = 12  # most reasons shown

_WORDS = {
    "ship": ("ship", "Ship", "The log is good evidence that this policy is better than the logging policy."),
    "first step": (
        "step",
        "First step",
        "Not proven as a whole; proven in part of the traffic, whose log would show the rest.",
    ),
    "hold": ("hold", "Hold", "Do not ship this policy on the evidence of this log."),
    "need more data": ("more", "Need more data", "This log cannot tell yet whether the policy is better."),
}
KINDS = {decision: kind for decision, (kind, _, _) in _WORDS.items()}  # CSS class of a verdict


def header(evaluation: Evaluation) -> str:
    """The head of the report: name, metric, the verdict with its reasons, key numbers and guards."""
    size = f" of {count(evaluation.users)} users, {count(evaluation.decisions)} decisions"
    log = size if evaluation.users else ""
    asked = evaluation.question.rstrip(".")
    question = f"{asked}: {evaluation.metric}" if asked else evaluation.metric
    verdict = evaluation.verdict
    kind, word, lead = "none", "No verdict", "No gate was used; the numbers below stand on their own."
    listed = needed = guards = ""
    if verdict is not None:
        kind, word, lead = _WORDS[verdict.decision]
        listed = "".join(f"<li>{esc(reason)}</li>" for reason in verdict.reasons[:MANY_REASONS])
        more = len(verdict.reasons) - MANY_REASONS
        listed += f"<li>… and {more} more reasons</li>" if more > 0 else ""
        if verdict.users_needed is not None:
            needed = f"<p>{esc(needed_words(verdict))}</p>"
        if verdict.guards:
            rows = [[badge(guard.severity), esc(guard.sentence)] for guard in verdict.guards]
            guards = (
                f"<h3>Metrics that must not fall</h3>{table(['', 'guard'], rows, caption='Guard metrics')}"
            )
    return (
        f'<p class="kicker">Off-policy evaluation</p><h1>{esc(evaluation.policy_name, 120)}</h1>'
        f'<p class="soft">{esc(question, 600)} · judged from a log{log}</p>'
        f'<div class="verdict {kind}" role="region" aria-label="Verdict"><p class="word">{sign(kind, 30)}'
        f'<span>{word}</span></p><p class="lead">{lead}</p>{f"<ul>{listed}</ul>" if listed else ""}'
        f"{needed}{_tiles(evaluation)}{guards}</div>"
    )


def _tiles(evaluation: Evaluation) -> str:
    lead = evaluation.lead
    estimate, mixed = lead.estimate, percent(lead.share, 3)
    sure = level(estimate.lift_interval.level)
    share = relative(estimate.lift, estimate.baseline)
    change = f" ({percent(share, 2, sign=True)})" if share is not None else ""
    known = f" of {count(evaluation.users)}" if evaluation.users else ""
    whose = "" if evaluation.mixture is None else f" of {mixed} of the decisions"
    unit = " per user" if "per user" in evaluation.metric else ""
    policy = "this policy" if evaluation.mixture is None else f"{mixed} by this policy"
    biased = evaluation.mixture is None and may_be_biased(evaluation, estimate)
    tiles = (
        tile(signed(estimate.lift), f"lift{unit}{whose}{change}"),
        tile(
            f"{signed(estimate.lift_interval.lower, 2)} … {signed(estimate.lift_interval.upper, 2)}",
            f"{sure} interval of the lift" + ("; may be biased" if biased else ""),
        ),
        tile(number(estimate.baseline), f"logging policy; {policy}: {number(estimate.value)}"),
        tile(count(estimate.effective_users), f"effective users{known}"),
    )
    said = "" if evaluation.mixture is None else f"<p>{esc(evaluation.mixture.sentence())}</p>"
    return f'<div class="tiles">{"".join(tiles)}</div>{said}'


def relative(lift: float, baseline: float) -> float | None:
    """The lift relative to the logging policy's value; None if not finite, or not below 100."""
    if baseline == 0 or not math.isfinite(lift) or not math.isfinite(baseline):
        return None
    share = lift / abs(baseline)
    if abs(share) < 1e-9:  # rounding error
        return 0.0
    return share if abs(share) < 100 else None
