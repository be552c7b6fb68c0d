"""Small icons beside words, so that meaning never depends on colour alone."""

from __future__ import annotations

# path data on a 16 × 16 grid
_PATHS = {
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


def sign(kind: str, size: int = 16) -> str:
    """An icon as SVG, in the colour of the words beside it."""
    return (
        f'<svg width="{size}" height="{size}" viewBox="0 0 16 16" aria-hidden="true" fill="none"'
        f' stroke="currentColor" stroke-width="2.4" stroke-linecap="round"><path d="{_PATHS[kind]}"/></svg>'
    )


def badge(severity: str) -> str:
    """The severity of a diagnostic: icon, word and colour."""
    return f'<span class="badge {severity}">{sign(severity, 12)}{severity}</span>'
