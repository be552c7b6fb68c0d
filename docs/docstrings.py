"""From docstrings that are plain text, with equations and tables set by spaces, to reStructuredText.

Paragraphs are escaped, `names` become code, and what is indented or aligned stays as it is, in a literal
block. The sections of Google style (Args, Returns, …) are left to napoleon, with their words escaped.
"""

from __future__ import annotations

import re
from typing import Any

_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Note|Example|Examples):\s*$")
_CODE = re.compile(r"(``.+?``|`[^`\n]+`)")
_BULLET = re.compile(r"^([*-]|\d+\.) ")
_PLAIN: dict[str, list[str]] = {}
_ALIGNED = re.compile(r"\S {2,}\S")


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Rewrite the lines of a docstring in place."""
    lines[:] = converted(lines)
    _PLAIN[name] = list(lines)


def restore(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """After napoleon, which reads "words: words" of a property as "type: description"."""
    if what in ("attribute", "data", "property"):
        lines[:] = _PLAIN.get(name, lines)


def converted(lines: list[str]) -> list[str]:
    """The docstring as reStructuredText."""
    out: list[str] = []
    for block in _blocks(lines):
        if _SECTION.match(block[0]):
            out += [block[0], *(_escaped(line) for line in block[1:]), ""]
        elif _literal(block):
            out += ["::", "", *(f"    {line}" for line in block), ""]
        elif _BULLET.match(block[0]):
            out += [*_bullets(block), ""]
        else:
            out += [_escaped(" ".join(line.strip() for line in block)), ""]
    return out


def _blocks(lines: list[str]) -> list[list[str]]:
    """Runs of lines without a blank one; a section takes all indented lines that follow it."""
    found: list[list[str]] = []
    inside = False
    for line in lines:
        if not line.strip():
            if inside and found:
                found[-1].append("")
            else:
                found.append([])
        elif _SECTION.match(line):
            found.append([line])
            inside = True
        elif inside and line.startswith(" "):
            found[-1].append(line)
        else:
            if inside or not found:
                found.append([])
            inside = False
            found[-1].append(line)
    return [block for block in found if block]


def _literal(block: list[str]) -> bool:
    """Equations, tables and code: indented, aligned by spaces, or with lines that hang."""
    if all(line.startswith(" ") for line in block) or any(_ALIGNED.search(line) for line in block):
        return True
    return not _BULLET.match(block[0]) and any(line.startswith(" ") for line in block)


def _bullets(block: list[str]) -> list[str]:
    out: list[str] = []
    for line in block:
        match = _BULLET.match(line)
        if match:
            out += ["", f"{match[0]}{_escaped(line[match.end() :])}"]
        else:
            out[-1] += " " + _escaped(line.strip())
    return out


def _escaped(line: str) -> str:
    """Words that reStructuredText would take for markup are shown as they are; `code` is code."""
    parts = _CODE.split(line)
    return "".join(
        f"``{part.strip('`')}``" if j % 2 else re.sub(r"([\\*|_`])", r"\\\1", part)
        for j, part in enumerate(parts)
    )
