"""The audit as text for a terminal: the verdict first, then what was found, then the facts."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from shpi.data.audit.endings import in_words
from shpi.data.audit.figures import calibration_figure, share_bar

if TYPE_CHECKING:
    from shpi.data.audit.facts import Spread
    from shpi.data.audit.findings import Finding
    from shpi.data.audit.report import AuditReport

WIDTH = 100  # columns of text that does not go to a terminal
_SIGNS = {"error": ("✗", "bold red"), "warning": ("!", "yellow"), "info": ("·", "cyan")}
# Replacements for signs that the terminal's encoding does not have.
_PLAIN = str.maketrans({"✓": "+", "✗": "x", "·": "-", "×": "x", "→": ">", "█": "#", "▌": "#", "–": "-",
                        "│": "|", "…": ".", "─": "-", "µ": "u", "▏": "|", "÷": "/"})  # fmt: skip
Row = tuple[str, RenderableType]


def show(report: AuditReport, console: Console | None = None) -> None:
    """Print the report; signs that the output cannot encode are replaced by plain ones."""
    if console is None:
        into_terminal = sys.stdout.isatty() or "COLUMNS" in os.environ
        console = Console(width=None if into_terminal else WIDTH)
    encodable = console.encoding.lower().replace("-", "").startswith("utf")
    if console.is_terminal and encodable:
        console.print(_body(report))
        return
    text = as_text(report, width=console.width)
    if not encodable:
        text = text.translate(_PLAIN).encode(console.encoding, "replace").decode(console.encoding)
    console.out(text, highlight=False)


def as_text(report: AuditReport, width: int = WIDTH) -> str:
    """The report without colours."""
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    console.print(_body(report))
    with_spaces = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in with_spaces.splitlines())


def _body(report: AuditReport) -> Group:
    parts: list[RenderableType] = [_verdict(report), Text(report.question)]
    if report.findings:
        parts.append(_section("Findings"))
        parts += [_finding(finding) for finding in report.findings]
    for title, rows in (
        ("Rows", _rows(report)),
        ("Decisions", _decisions(report)),
        ("How users end", _endings(report)),
        ("Actions", _actions(report)),
        ("Reward", _reward(report)),
        ("Propensities", _propensities(report)),
        ("Horizon", _horizon(report)),
    ):
        parts += [_section(title), _grid(rows)]
    return Group(*parts)


def _verdict(report: AuditReport) -> Text:
    errors, warnings = _count(report.count("error"), "error"), _count(report.count("warning"), "warning")
    words = f"{errors}, {warnings}, {report.count('info')} info"
    verdict = ("✓ fit for learning", "bold green") if report.fit else ("✗ unfit for learning", "bold red")
    source = f"\n{report.source}" if report.source else ""
    return Text.assemble(verdict, f": {words}", (source, "dim"))


def _section(title: str) -> Text:
    return Text(f"\n{title}", style="bold")


def _finding(finding: Finding) -> Table:
    sign, style = _SIGNS[finding.severity]
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=2, justify="right")
    table.add_column(ratio=1, overflow="fold")
    example = ""
    if finding.example_row is not None:
        example = f" Example: decision {finding.example_row:,}" + (
            f" ({finding.example})." if finding.example else "."
        )
    head = Text.assemble((f"{finding.severity} ", style), (f"[{finding.code}] ", "dim"))
    table.add_row(Text(sign, style), Text.assemble(head, finding.message, (example, "dim")))
    table.add_row("", Text(f"→ {_sentence(finding.remedy)}", style="italic"))
    return table


def _grid(rows: Iterable[Row]) -> Padding:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(width=20, style="dim")
    table.add_column(ratio=1, overflow="fold")
    for label, content in rows:
        # Text, not str: a label such as [b] in the data must not be read as markup.
        table.add_row(Text(label), Text(content) if isinstance(content, str) else content)
    return Padding(table, (0, 0, 0, 2))


def _rows(report: AuditReport) -> Iterable[Row]:
    ledger = report.facts.ledger
    parts = [f"{ledger.rows_used:,} used"]
    if ledger.final_rows:
        parts.append(f"{ledger.final_rows:,} last contexts")
    parts.append(f"{ledger.rows_dropped:,} dropped")
    sign = "✓ adds up" if ledger.balanced() else "✗ does not add up"
    yield "in = used + dropped", f"{ledger.rows_in:,} = {' + '.join(parts)}   {sign}"
    for drop in ledger.drops:
        column = f", column '{drop.column}'" if drop.column else ""
        example = f", e.g. source row {drop.example:,}" if drop.example is not None else ""
        remedy = f" → {_sentence(drop.remedy)}" if drop.remedy else ""
        yield f"  {drop.rows:,} dropped", f"{drop.reason}{column}{example}.{remedy}"
    for note in ledger.notes:
        yield "  note", note


def _decisions(report: AuditReport) -> Iterable[Row]:
    facts = report.facts
    s, time = facts.structure, facts.time
    yield (
        "size",
        f"{s.decisions:,} decisions of {s.users:,} users in {s.sessions:,} sessions"
        + (f" ({s.trajectories:,} trajectories)" if s.trajectories != s.users else ""),
    )
    if time.unit == "us":
        yield "time", f"{time.first} to {time.last} UTC ({time.span})"
    else:
        yield "time", f"{time.first} to {time.last} (plain numbers, no calendar)"
    yield "decisions per user", _spread(s.decisions_per_user)
    yield "sessions per user", _spread(s.sessions_per_user)
    yield "session length", _spread(s.session_length)
    total = sum(count for _, count in s.session_lengths)
    if len(s.session_lengths) > 1:
        for label, count in s.session_lengths:
            yield "", f"{label:>7}  {share_bar(count / total)} {_share(count / total)}"
    context = f"{s.dimensions} dimensions of {_count(len(report.facts.columns.names), 'column')}"
    yield "context", context if s.dimensions else "none"
    yield from _factors(report)


def _endings(report: AuditReport) -> Iterable[Row]:
    s, facts, unit = report.facts.structure, report.facts.endings, report.facts.time.unit
    yield "who left", facts.how
    ends = "the metric's window ends for every user"
    if facts.how != "by window":
        ends = (
            f"{s.terminated:,} terminated, {s.truncated:,} truncated "
            f"({s.final_observed:,} of these with their last context)"
        )
    yield "endings", ends
    if facts.gaps is not None:
        yield "gaps", f"{_times(facts.gaps, unit)} between two visits of a user"
    yield "silence", f"{_times(facts.silence, unit)} from a user's last decision to the end of the log"
    if facts.plain is None:
        return
    if facts.churn_after is not None:
        yield (
            "proposed",
            f'churn_after = "{facts.churn_after}" ({facts.longer_gaps:.1%} of gaps are longer)',
        )
    yield "value per user", f"{facts.plain:,.4g} in the table"
    yield (
        "",
        f"{facts.left:,.4g} is the logging policy's value if unlogged rewards count as 0 (default)",
    )
    if facts.by_churn is not None:
        yield "", f"{facts.by_churn:,.4g} if users have left after {facts.churn_after} of silence"
    if facts.censored is not None:
        yield "", f"{facts.censored:,.4g} if no user has left (all are censored)"


def _times(spread: Spread, unit: str) -> str:
    middle, low, high = (in_words(value, unit) for value in (spread.median, spread.q10, spread.q90))
    return f"median {middle}; 8 in 10 lie between {low} and {high}"


def _factors(report: AuditReport) -> Iterable[Row]:
    d = report.facts.decomposition
    if d.users == d.decisions:
        yield "long-term reward", "not defined, because no user is seen twice"
        return
    if report.facts.endings.how == "by window" and d.total_reward is not None:
        yield (
            "value",
            f"{d.total_reward / d.users:,.4g} per user in the window, as the logging policy brought it",
        )
        return
    period = "month" if d.period == "month" else "user"
    tail = f"{d.decisions_per_session:.4g} decisions/session × {d.sessions_per_period:.4g} sessions/{period}"
    if d.ltr is None or d.reward_per_decision is None:
        yield "long-term factors", f"{tail} (no reward yet)"
        return
    unit = f"per user and month (30 days; the log has {report.facts.time.span})"
    if d.period != "month":
        unit = "per user over the log"
    yield "long-term reward", f"{d.ltr:,.4g} {unit}"
    yield "", f"= {d.reward_per_decision:.4g} reward/decision × {tail}"


def _actions(report: AuditReport) -> Iterable[Row]:
    facts = report.facts.actions
    yield "chosen", f"{facts.chosen:,} of {report.facts.structure.actions:,} actions"
    logged = "logged with each decision" if facts.candidates_logged else "all actions, always"
    yield "candidates", f"{facts.candidates_mean:.4g} on average ({logged})"
    for index, action in enumerate(facts.most):
        label = "most often" if index == 0 else ""
        yield (
            label,
            f"{action.action!s:>12.12}  {share_bar(action.share)} {_share(action.share)}  {action.count:,}",
        )


def _reward(report: AuditReport) -> Iterable[Row]:
    reward = report.facts.reward
    if reward is None:
        yield "reward", "none"
        return
    if reward.values:
        low, high = reward.values
        share = (reward.spread.mean - low) / (high - low)
        yield "values", f"{low:g} or {high:g}; {high:g} in {share:.2%} of {reward.observed:,} decisions"
    else:
        yield "distribution", f"{_spread(reward.spread)}; standard deviation {reward.deviation:.4g}"
        if reward.zeros:
            yield "zeros", f"{reward.zeros:.1%}"
    if reward.censored:
        yield "censored", f"{reward.censored:,} rewards whose future was not observed"
    if reward.by_action:
        best, worst = reward.by_action
        yield (
            "by action",
            (
                f"mean {best[1]:.4g} for {best[0]} ({best[2]:,}×) down to {worst[1]:.4g} for {worst[0]} "
                f"({worst[2]:,}×); raw means, not effects"
            ),
        )


def _propensities(report: AuditReport) -> Iterable[Row]:
    p = report.facts.propensity
    if p is None:
        yield "mode", report.propensity_mode
        return
    yield "mode", f"{p.mode}; {p.decisions:,} decisions had a choice"
    low, high, half = p.spread.min, p.spread.max, p.spread.median
    small = f"; {p.below_small:.1%} are below 1%" if p.below_small else ""
    yield (
        "range",
        f"always {low:.3g}" if low == high else f"{low:.3g} to {high:.3g}, median {half:.3g}{small}",
    )
    what = "candidates" if p.expected_from == "candidates" else "actions with a positive probability"
    z = "" if p.z is None else f", z = {p.z:.1f}"
    against = f"against {p.inverse_expected:,.4g} {what} (ratio {p.ratio:.3f}{z})"
    yield "mean of 1/p", f"{p.inverse_mean:,.4g} {against}"
    worth = f"{p.uniform_ess:,.1f} of {p.decisions:,} ({p.uniform_ess / p.decisions:.2%})"
    yield "uniform policy", f"effective sample size {worth}; largest weight {p.top_weight:.1%} of all"
    least = [
        f"{s.action}: {s.count:,} decisions"
        + (f" worth {s.effective:,.1f}" if s.effective < 0.95 * s.count else "")
        for s in p.least_supported
    ]
    yield "least evidence on", "; ".join(least)
    if p.calibration is not None:
        yield "calibration", f"expected error {p.calibration.error:.2g}; bars: chosen less or more often"
        for line in calibration_figure(p.calibration):
            yield "", Text(line, no_wrap=True, overflow="ellipsis")


def _horizon(report: AuditReport) -> Iterable[Row]:
    horizon = report.facts.horizon
    yield "suggested k", Text.assemble((str(horizon.k), "bold"), f" : {_sentence(horizon.reason)}")
    yield "session length", ", ".join(f"{q:.0%}: {value}" for q, value in horizon.quantiles) + " (quantiles)"
    if horizon.gaps:
        yield (
            "other session gaps",
            ", ".join(f"{option.gap}: {option.mean_length:.3g}" for option in horizon.gaps)
            + " decisions on average",
        )


def _spread(spread: Spread) -> str:
    if spread.min == spread.max:
        return f"always {spread.min:,.6g}"
    middle = f"8 in 10 lie between {spread.q10:,.6g} and {spread.q90:,.6g}"
    return (
        f"mean {spread.mean:,.4g}, median {spread.median:,.6g}; {middle}, all between {spread.min:,.6g} and "
        f"{spread.max:,.6g}"
    )


def _share(share: float) -> str:
    return " <0.1%" if 0 < share < 0.0005 else f"{share:6.1%}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
