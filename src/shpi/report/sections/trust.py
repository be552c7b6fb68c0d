"""Diagnostics, configuration, and the identity of the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shpi.report.numbers import count, number
from shpi.report.page import Section, badge, esc, folded, table

if TYPE_CHECKING:
    from shpi.ope.results import Diagnostic, Evaluation

MANY_CHECKS, MANY_SETTINGS = 60, 150  # most checks and settings shown
_ORDER = ("fatal", "warning", "note", "fine")


def diagnostics(evaluation: Evaluation) -> Section:
    """The diagnostics, the worst first; those of estimators that do not decide come separately."""
    checks = sorted(evaluation.diagnostics, key=lambda check: _ORDER.index(check.severity))
    deciding = [check for check in checks if check.estimator in (None, evaluation.main)]
    others = [check for check in checks if check.estimator not in (None, evaluation.main)]
    worth = [check for check in deciding if check.severity != "fine"]
    fine = [check for check in deciding if check.severity == "fine"]
    counts = [(word, sum(check.severity == word for check in deciding)) for word in _ORDER]
    words = ", ".join(f"{number_of} {word}" for word, number_of in counts if number_of) or "none"
    body = "<p>No checks were made.</p>"
    if checks:
        whose = f"the log and of {esc(evaluation.main, 80)}, which decides"
        body = f"<p>{len(deciding)} checks of {whose}: {words}.</p>"
    body += _checks(worth) if worth else ""
    body += folded(f"{len(fine)} checks that found nothing wrong", _checks(fine)) if fine else ""
    if others:
        failed: dict[tuple[str, str], list[str]] = {}  # the estimators that failed each check
        for check in others:
            if check.severity != "fine" and len(failed) < MANY_CHECKS:
                failed.setdefault((check.severity, check.name), []).append(str(check.estimator))
        rows = [
            [badge(severity), esc(name, 80), esc(", ".join(dict.fromkeys(names)))]
            for (severity, name), names in failed.items()
        ]
        body += "<h3>Estimators that do not decide</h3>"
        body += (
            table(["", "check", "estimators"], rows, caption="Checks of the other estimators")
            if rows
            else "<p>Nothing wrong was found with the others.</p>"
        )
        body += folded("All of these checks", _checks(others), paper=False)
    return Section(
        key="checks",
        title="Diagnostics",
        how="Checks of the log, the weights and the estimates. <b>fatal</b>: do not rely on it; "
        "<b>warning</b>: read before you decide; <b>note</b>: worth knowing; <b>fine</b>: nothing wrong.",
        body=body,
    )


def _checks(checks: Sequence[Diagnostic]) -> str:
    items = ""
    for check in checks[:MANY_CHECKS]:
        facts = [esc(check.name, 80)]
        facts += [f"about {esc(check.estimator, 80)}"] if check.estimator else []
        facts += [f"found {number(check.figure)}"] if check.figure is not None else []
        facts += [f"threshold {number(check.threshold)}"] if check.threshold is not None else []
        items += (
            f"<li><div>{badge(check.severity)}</div><div><p>{esc(check.sentence, 900)}</p>"
            f'<p class="soft">{" · ".join(facts)}</p></div></li>'
        )
    more = len(checks) - MANY_CHECKS
    return f'<ul class="checks">{items}</ul>' + (f"<p>… and {count(more)} more.</p>" if more > 0 else "")


def configuration(evaluation: Evaluation) -> Section:
    """How this was computed, and from which log."""
    facts = [
        ["log (fingerprint)", f"<code>{esc(evaluation.fingerprint or 'not taken')}</code>"],
        ["users", count(evaluation.users)],
        ["decisions", count(evaluation.decisions)],
        ["policy", esc(evaluation.policy_name)],
        ["metric", esc(evaluation.metric)],
        ["decides", esc(evaluation.main)],
    ]
    settings = [
        [esc(key, 120), f"<code>{esc(value)}</code>"] for key, value in _flat(evaluation.configuration)
    ]
    cut = len(settings) - MANY_SETTINGS
    more = f"<p>… and {count(cut)} more.</p>" if cut > 0 else ""
    return Section(
        key="setup",
        title="Configuration and data",
        how="The same log (same fingerprint) with the same settings gives the same report.",
        body=table(["", ""], facts, caption="Log and policy")
        + (
            folded(
                "All settings",
                table(["setting", "value"], settings[:MANY_SETTINGS], caption="Settings") + more,
            )
            if settings
            else ""
        ),
    )


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as pairs of a dotted name and a value."""
    if isinstance(value, Mapping):
        if "name" in value and "kind" in value:  # an estimator: one line
            rest = {key: item for key, item in value.items() if key not in ("name", "kind")}
            inner = ", ".join(f"{key}={item}" for key, item in rest.items())
            yield f"estimator {value['name']}", f"{value['kind']}({inner})"
            return
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _flat(item, f"{name}[{index}]")
    else:
        yield name, str(value)
