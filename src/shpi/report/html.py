"""The report of an evaluation: one HTML file that opens anywhere.

Aggregates and inline SVG only: the size does not depend on the log. No scripts, no fonts, no requests; a
content security policy in the file makes the browser refuse them. Text that comes from users is escaped.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import shpi
from shpi.report.files import write_whole
from shpi.report.page import card, esc, page
from shpi.report.sections import candidates
from shpi.report.sections.glossary import glossary
from shpi.report.sections.lift import lift
from shpi.report.sections.origin import origin
from shpi.report.sections.overlap import overlap
from shpi.report.sections.terms import factors, now_and_later
from shpi.report.sections.trust import configuration, diagnostics
from shpi.report.sections.verdict import header

if TYPE_CHECKING:
    from shpi.ope.candidates import Comparison
    from shpi.ope.results import Evaluation

_FOOTER = f"Written by shpi {esc(shpi.__version__)}. Everything in this file is an aggregate over users."
_GLOSSARY = glossary()
_CHART_ID = re.compile(r"\b([td][0-9a-f]{10})\b")
_SECTIONS = (
    lift,
    now_and_later,
    factors,
    origin,
    overlap,
    diagnostics,
    configuration,
)  # None: nothing to say


def render(evaluation: Evaluation) -> str:
    """The report as a string. The same evaluation gives the same string."""
    word = "no verdict" if evaluation.verdict is None else evaluation.verdict.decision
    title = f"{evaluation.policy_name}: {word}"
    sections = [section for make in _SECTIONS if (section := make(evaluation)) is not None]
    return page(title, header(evaluation), [*sections, _GLOSSARY], _FOOTER)


def render_comparison(comparison: Comparison) -> str:
    """A report of all candidates side by side, followed by the folded report of each."""
    blocks = []
    for number, evaluation in enumerate(comparison.evaluations):
        inner = header(evaluation) + "".join(
            card(replace(section, key=f"c{number}-{section.key}"))
            for make in _SECTIONS
            if (section := make(evaluation)) is not None
        )
        inner = _CHART_ID.sub(rf"\1c{number}", inner)  # two candidates may have the same chart
        decision = "no verdict" if evaluation.verdict is None else evaluation.verdict.decision
        opened = " open" if evaluation.policy_name == comparison.best else ""
        blocks.append(
            f'<details class="candidate" id="c{number}"{opened}>'
            f"<summary>{esc(evaluation.policy_name, 120)}: {decision}</summary>{inner}</details>"
        )
    title = f"{len(comparison.evaluations)} candidates: {comparison.best or 'none'} to ship"
    return page(
        title,
        candidates.header(comparison),
        [candidates.side_by_side(comparison.evaluations), _GLOSSARY],
        _FOOTER,
        after="".join(blocks),
    )


def write_html(evaluation: Evaluation, path: str | Path) -> Path:
    """Write the report to a file, which appears complete or not at all."""
    return write_whole(path, render(evaluation))


def write_comparison(comparison: Comparison, path: str | Path) -> Path:
    """Write the report of several candidates to a file, which appears complete or not at all."""
    return write_whole(path, render_comparison(comparison))
