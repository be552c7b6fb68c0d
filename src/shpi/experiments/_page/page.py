"""The page of a run: README.md and index.html with the paper's numbers beside ours, and figures as files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from shpi.experiments._page import story, topics
from shpi.experiments._run.cells import Row
from shpi.experiments._run.experiment import Block, Claim, Experiment, Figure, Note, Results, Table
from shpi.experiments._run.settings import READINGS
from shpi.report import svg
from shpi.report.files import write_whole

FIGURES = "figures"
LONG = 45  # characters of a table cell above which it may wrap
CHOSEN = (
    "Settings of our methods were chosen on seeds of 100 and above; those of paper() are the paper's, those "
    "of released() the release's. Seeds 0 to 4 were looked at in version 0.1, when its defaults lost in HIV "
    "and on one RecoGym log; none of the rules that were made then is part of the learner now. They were "
    "looked at again when two HIV logs ended below the logging policy: the learner now counts visits that "
    "cannot be as error, which has no setting. Every method has one configuration for all worlds, but for "
    "the gradient steps of BCQ and CQL, of which HIV has more."
)
RULE = (
    "A claim that one method is better than another is marked *reproduced* if the mean of the paired "
    "differences is above 0 with p <= 0.05 in a one-sided sign-flip test over the seeds, and *not "
    "reproduced* otherwise, also where the difference points the same way but may be chance. With fewer "
    "than 5 seeds it stays open. Other claims say their rule in their words. No verdict is written by "
    "hand."
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """The section of one experiment."""

    experiment: Experiment
    blocks: tuple[Block, ...]
    rows: tuple[Row, ...]
    missing: int  # cells of the plan that have no rows
    skipped: str = ""  # why it was not run

    @property
    def claims(self) -> list[Claim]:
        """The claims of the section."""
        return [block for block in self.blocks if isinstance(block, Claim)]

    @property
    def status(self) -> str:
        """A sentence on how complete the experiment is."""
        failed = Results(self.rows).failures()
        seconds = sum({row.cell: row.seconds for row in self.rows}.values())
        parts = [self.skipped] if self.skipped else [f"{seconds:,.0f} CPU-seconds of fitting"]
        parts += [f"{self.missing} cells not run yet"] if self.missing and not self.skipped else []
        parts += [f"{len(failed)} cells failed, the first with: {failed[0].message}"] if failed else []
        return "; ".join(parts)


def section(experiment: Experiment, rows: Sequence[Row], missing: int, skipped: str = "") -> Section:
    """Build the section of an experiment from its rows; without rows it has no blocks."""
    results = Results(tuple(rows))
    shown = any(row.value is not None for row in rows)
    return Section(
        experiment=experiment,
        blocks=tuple(experiment.show(results)) if shown else (),
        rows=tuple(rows),
        missing=missing,
        skipped=skipped,
    )


def write(folder: Path, sections: Sequence[Section], facts: Sequence[str]) -> tuple[Path, Path]:
    """Write both pages and all figures; return the paths of the pages."""
    (folder / FIGURES).mkdir(exist_ok=True)
    first = story.figure(_told(sections))
    if first is not None:
        svg.write(folder / FIGURES / first.file, first.svg)
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Figure):
                svg.write(folder / FIGURES / block.file, block.svg)
    markdown = write_whole(folder / "README.md", to_markdown(sections, facts))
    return markdown, write_whole(folder / "index.html", to_html(sections, facts))


# ---------------------------------------------------------------------- Markdown


def to_markdown(sections: Sequence[Section], facts: Sequence[str]) -> str:
    """The page as Markdown."""
    pages = _told(sections)
    drawn = story.figure(pages)
    lines = ["# The paper, the authors' release and ours, side by side", "", "## What was learned", ""]
    lines += [f"{number}. {text}" for number, text in enumerate(story.lessons(pages), 1)]
    lines += [] if drawn is None else ["", *_markdown(drawn)]
    lines += ["", "## Claims", "", RULE, "", *_markdown_table(digest(sections))]
    lines += ["## How this was run", "", *(f"- {fact}" for fact in facts), "", CHOSEN, ""]
    for section in sections:
        experiment = section.experiment
        lines += [
            f"## {experiment.name}: {experiment.title}",
            "",
            f"*{experiment.source}.* {experiment.about}",
        ]
        lines += ["", f"({section.status}.)", ""]
        for block in section.blocks:
            if not isinstance(block, Claim):
                lines += [*_markdown(block), ""]
        if section.claims:
            lines += ["<details>", f"<summary>{_summary(section.claims)}</summary>", ""]
            lines += [*_markdown_table(claims_table(section.claims)), "</details>", ""]
    return "\n".join(lines).rstrip() + "\n"


def _told(sections: Sequence[Section]) -> story.Page:
    return {section.experiment.name: (Results(section.rows), section.claims) for section in sections}


def _summary(claims: Sequence[Claim]) -> str:
    """How many claims hold, by reading of SHPI."""
    counts = []
    for reading in (*READINGS, ""):
        decided = [claim for claim in claims if claim.reading == reading and claim.holds is not None]
        if decided:
            counts.append(f"{reading or 'others'} {sum(bool(c.holds) for c in decided)} of {len(decided)}")
    return f"{len(claims)} comparisons; those that hold: {', '.join(counts) or 'too few trials'}"


def claims_table(claims: Sequence[Claim]) -> Table:
    """Every claim with its verdict, the number of trials and p."""
    return Table(
        "Every comparison",
        ("claim", "reading", "verdict", "evidence", "trials", "p"),
        tuple(
            (
                claim.text,
                claim.reading or "–",
                claim.verdict,
                claim.evidence,
                str(claim.trials) if claim.trials else "–",
                "–" if claim.p is None else f"{claim.p:.3f}",
            )
            for claim in claims
        ),
    )


def _markdown(block: Block) -> list[str]:
    if isinstance(block, Table):
        return [f"**{block.title}**", "", *_markdown_table(block)]
    if isinstance(block, Figure):
        return [f"![{block.title}]({FIGURES}/{block.file})"]
    assert isinstance(block, Note)
    return [block.text]


def _markdown_table(table: Table) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(table.columns), line(["---"] * len(table.columns)), *(line(row) for row in table.rows), ""]


def digest(sections: Sequence[Section]) -> Table:
    """A table of the paper's statements: how often the claims on each hold, and where they do not."""
    rows = []
    for key, text in {**topics.PAPER, **topics.OURS}.items():
        claims = [
            (section.experiment.name, c) for section in sections for c in section.claims if c.topic == key
        ]
        if claims:
            by_reading = [[pair for pair in claims if pair[1].reading == reading] for reading in READINGS]
            rows.append((text, *(_count(column) for column in by_reading)))
    return Table(
        "Counted by what they say; each stands in its section below",
        ("claim", *READINGS),
        tuple(rows),
    )


def _count(claims: Sequence[tuple[str, Claim]]) -> str:
    decided = [(name, claim) for name, claim in claims if claim.holds is not None]
    if not claims or not decided:
        return "–" if not claims else "open: too few trials"
    good = next((claim.verdict for _, claim in decided if claim.holds), "")
    missed = sorted({name for name, claim in decided if not claim.holds})
    if not missed:
        return f"{good} ({len(decided)} of {len(decided)})"
    holding = sum(bool(claim.holds) for _, claim in decided)
    head = (
        f"in part ({holding} of {len(decided)})"
        if holding
        else f"{decided[0][1].verdict} (0 of {len(decided)})"
    )
    return f"{head}; not in {', '.join(missed)}"


# ---------------------------------------------------------------------- HTML

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; }
body { color: var(--shpi-ink); background: var(--shpi-paper); }
h1, h2 { line-height: 1.2; }
h2 { margin-top: 3rem; border-top: 1px solid var(--shpi-grid); padding-top: 1rem; }
table { border-collapse: collapse; font-size: .9rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--shpi-grid); }
th, td { vertical-align: top; } caption { text-align: left; font-weight: 600; padding: .3rem 0; }
.numbers td, .numbers th, caption { white-space: nowrap; }
figure { margin: 1rem 0; overflow-x: auto; }
figcaption { font-weight: 600; } .soft { color: var(--shpi-soft); }
summary { cursor: pointer; margin: 1rem 0; }
nav a { margin-right: .8rem; white-space: nowrap; } a { color: inherit; }
@media print { h2 { break-before: page; } }
"""


def to_html(sections: Sequence[Section], facts: Sequence[str]) -> str:
    """The page as one HTML file, with the figures inside."""
    pages = _told(sections)
    drawn = story.figure(pages)
    names = [section.experiment.name for section in sections]
    links = " ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in names)
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>shpi reproduce</title><style>{_colours()}{_STYLE}</style></head><body>",
        "<h1>The paper, the authors' release and ours, side by side</h1>",
        f"<nav>{links}</nav><h2>What was learned</h2>",
        "<ol>" + "".join(f"<li>{escape(text)}</li>" for text in story.lessons(pages)) + "</ol>",
        "" if drawn is None else _html(drawn),
        f"<h2>Claims</h2><p>{escape(_plain(RULE))}</p>",
        _html(digest(sections)),
        "<h2>How this was run</h2>",
        "<ul>" + "".join(f"<li>{escape(_plain(fact))}</li>" for fact in facts) + "</ul>",
        f"<p>{escape(CHOSEN)}</p>",
    ]
    for section in sections:
        experiment = section.experiment
        parts += [
            f"<h2 id='{escape(experiment.name)}'>{escape(experiment.name)}: {escape(experiment.title)}</h2>",
            f"<p><em>{escape(experiment.source)}.</em> {escape(experiment.about)}</p>",
            f"<p class='soft'>{escape(section.status)}.</p>",
            *(_html(block) for block in section.blocks if not isinstance(block, Claim)),
        ]
        if section.claims:
            table = _html(claims_table(section.claims))
            parts.append(f"<details><summary>{escape(_summary(section.claims))}</summary>{table}</details>")
    return "\n".join([*parts, "</body></html>", ""])


def _plain(text: str) -> str:
    """A text without Markdown's markup."""
    return text.replace("*", "").replace("`", "")


def _colours() -> str:
    light, dark = svg.css_variables(dark=False), svg.css_variables(dark=True)
    night = f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return f":root {{ color-scheme: light dark; {light} }} {night} @media print {{ :root {{ {light} }} }}"


def _html(block: Block) -> str:
    if isinstance(block, Table):
        head = "".join(f"<th>{escape(name)}</th>" for name in block.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in block.rows
        )
        caption = f"<caption>{escape(block.title)}</caption>"
        inside = f"{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        kind = "numbers" if all(len(cell) < LONG for row in block.rows for cell in row) else "words"
        return f"<div class='wide'><table class='{kind}'>{inside}</table></div>"
    if isinstance(block, Figure):
        return f"<figure><figcaption>{escape(block.title)}</figcaption>{block.svg}</figure>"
    assert isinstance(block, Note)
    return f"<p>{escape(block.text)}</p>"
