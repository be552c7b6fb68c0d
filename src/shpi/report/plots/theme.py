"""Colours, as CSS variables with fallbacks: a page may set them, a standalone file needs none.

Every rule is written twice, without and with ``var()``: programs without CSS variables use the first.
Series colours have a contrast of at least 4.5 : 1 to the paper, in light and in dark.
"""

from __future__ import annotations

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"

# name -> (light, dark)
COLOURS: dict[str, tuple[str, str]] = {
    "paper": ("#ffffff", "#16191d"),
    "ink": ("#1b1f24", "#e8eaed"),
    "soft": ("#59626d", "#a3adb8"),
    "grid": ("#dfe3e8", "#333a42"),
    "axis": ("#8b949e", "#6b7682"),
    "c0": ("#1b5fc1", "#79b0ff"),
    "c1": ("#a85400", "#ffb066"),
    "c2": ("#19743f", "#69d394"),
    "c3": ("#7538ad", "#c99dff"),
    "c4": ("#b3261e", "#ff948a"),
    "c5": ("#0b7080", "#5fd0df"),
    "c6": ("#59626d", "#a3adb8"),
    "c7": ("#7d5526", "#d8ae7c"),
}
SERIES = 8  # number of colours c0, c1, …; further series start again with the first


def variables(dark: bool) -> str:
    """``--shpi-ink: …;`` and so on, for a page that wants to set all of them."""
    return " ".join(f"--shpi-{name}: {pair[int(dark)]};" for name, pair in COLOURS.items())


def style_sheet() -> str:
    """The CSS rules in every chart."""
    light, dark = (
        "".join(
            f".shpi-{name}{{color:{pair[which]};color:var(--shpi-{name},{pair[which]})}}"
            for name, pair in COLOURS.items()
        )
        for which in (0, 1)
    )
    return f"{light}@media (prefers-color-scheme: dark){{{dark}}}@media print{{{light}}}"
