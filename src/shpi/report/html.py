"""The report of an evaluation: one HTML file that opens anywhere.

Aggregates and inline SVG only: the size does not depend on the log. No scripts, no fonts, no requests; a
content security policy in the file makes the browser refuse them. All that comes from users is escaped.
"""

from __future__ import annotations

from pathlib import Path

import shpi
from shpi.ope.results import Evaluation
from shpi.report.files import write_whole
from shpi.report.page import Section, esc, page
from shpi.report.sections.lift import lift
from shpi.report.sections.origin import origin
from shpi.report.sections.overlap import overlap
from shpi.report.sections.terms import factors, now_and_later
from shpi.report.sections.trust import configuration, diagnostics
from shpi.report.sections.verdict import header


def render(evaluation: Evaluation) -> str:
    """The report as a string. The same evaluation gives the same string."""
    candidates: tuple[Section | None, ...] = (
        lift(evaluation),
        now_and_later(evaluation),
        factors(evaluation),
        origin(evaluation),
        overlap(evaluation),
        diagnostics(evaluation),
        configuration(evaluation),
    )
    word = "no verdict" if evaluation.verdict is None else evaluation.verdict.decision
    footer = f"Written by shpi {esc(shpi.__version__)}. Everything in this file is an aggregate over users."
    return page(
        f"{evaluation.policy_name}: {word}",
        header(evaluation),
        [one for one in candidates if one is not None],
        footer,
    )


def write_html(evaluation: Evaluation, path: str | Path) -> Path:
    """Write the report to a file, which appears complete or not at all."""
    return write_whole(path, render(evaluation))
