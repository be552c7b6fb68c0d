"""Pieces of HTML that all sections use. Text that comes from users goes through `esc`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from shpi.report.style import CSS

WIDE, NARROW = 680.0, 330.0  # widths in px of the two drawings of each chart, for page and phone
LONGEST = 400  # characters of a name or a sentence; longer ones are cut, so that the file stays small

# No scripts, no requests: the browser itself refuses both.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

# icons beside words, so that meaning never depends on colour alone: path data on a 16 × 16 grid
_ICONS = {
    "ship": "M2.5 8.5 6.5 12.5 13.5 3.5",
    "step": "M2.5 12.5H6.5V8.5H10V4.5H13.5",
    "hold": "M4 4 12 12 M12 4 4 12",
    "more": "M8 2.5V9.5 M8 12.5V13.5",
    "none": "M3.5 8H12.5",
    "fine": "M2.5 8.5 6.5 12.5 13.5 3.5",
    "note": "M8 7V13 M8 3.2V4.2",
    "warning": "M8 2.5V9.5 M8 12.5V13.5",
    "fatal": "M4 4 12 12 M12 4 4 12",
}


@dataclass(frozen=True, kw_only=True)
class Section:
    """A card of the report."""

    key: str  # for links within the page
    title: str
    how: str  # one sentence: how to read it
    body: str  # HTML


def esc(words: object, most: int = LONGEST) -> str:
    """Words as HTML text, shortened."""
    text = str(words)
    text = text if len(text) <= most else text[: most - 1] + "…"
    plain = "".join(
        letter if letter.isprintable() or letter == " " else "\N{REPLACEMENT CHARACTER}" for letter in text
    )
    return escape(plain, quote=True)


def sign(kind: str, size: int = 16) -> str:
    """An icon as SVG, in the colour of the words beside it."""
    return (
        f'<svg width="{size}" height="{size}" viewBox="0 0 16 16" aria-hidden="true" fill="none"'
        f' stroke="currentColor" stroke-width="2.4" stroke-linecap="round"><path d="{_ICONS[kind]}"/></svg>'
    )


def badge(severity: str) -> str:
    """The severity of a diagnostic: icon, word and colour."""
    return f'<span class="badge {severity}">{sign(severity, 12)}{severity}</span>'


def figure(draw: Callable[..., str], caption: str = "") -> str:
    """A chart, drawn once for a page and once for a phone; the style sheet shows one of them.

    ``draw`` is a chart of `shpi.report.svg` with everything but its ``width``.
    """
    words = f"<figcaption>{caption}</figcaption>" if caption else ""
    page, phone = (
        f'<div class="{kind}">{draw(width=width)}</div>'
        for kind, width in (("wide", WIDE), ("narrow", NARROW))
    )
    return f"<figure>{words}{page}{phone}</figure>"


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str = "",
    numbers: Sequence[int] = (),
    main: int | None = None,
) -> str:
    """Rows of cells that are HTML already; columns in ``numbers`` are set to the right."""
    lines = []
    for i, row in enumerate([head, *rows]):
        tag, scope = ("td", "") if i else ("th", ' scope="col"')
        cells = (
            f"<{tag}{scope}{' class=n' if j in numbers else ''}>{cell}</{tag}>" for j, cell in enumerate(row)
        )
        lines.append(f"<tr{' class=main' if i - 1 == main else ''}>{''.join(cells)}</tr>")
    about = f"<caption hidden>{esc(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{esc(caption or "table")}">'
        f"<table>{about}"
        f"<thead>{lines[0]}</thead><tbody>{''.join(lines[1:])}</tbody></table></div>"
    )


def folded(summary: str, body: str, *, paper: bool = True) -> str:
    """A foldable block; in print it is open or, without ``paper``, left out."""
    return f"<details{'' if paper else ' class=screen'}><summary>{esc(summary)}</summary>{body}</details>"


def tile(number: str, words: str) -> str:
    """A key number with its caption."""
    return f'<div class="tile"><b>{number}</b><span>{words}</span></div>'


def card(section: Section) -> str:
    """A section as HTML."""
    return (
        f'<section id="{section.key}" aria-labelledby="h-{section.key}">'
        f'<h2 id="h-{section.key}">{esc(section.title)}</h2>'
        f'<p class="how">{section.how}</p>{section.body}</section>'
    )


def page(title: str, header: str, sections: Sequence[Section], footer: str, *, after: str = "") -> str:
    """The whole file; ``after`` stands below the first section."""
    links = "".join(f'<a href="#{section.key}">{esc(section.title)}</a>' for section in sections)
    body = "".join([card(sections[0]), after, *(card(section) for section in sections[1:])])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{esc(title)}</title><style>{CSS}</style></head>\n<body><main>{header}"
        f'<nav aria-label="Sections">{links}</nav>\n{body}\n<footer>{footer}</footer></main></body></html>\n'
    )
