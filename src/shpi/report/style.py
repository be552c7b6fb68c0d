"""The style sheet of the report: `report.css` with the colours of both themes."""

from __future__ import annotations

from importlib.resources import files

from shpi.report.plots.theme import FONT, variables

# name -> (light, dark): tints behind verdicts and badges; the words on them are in ink or in a series colour
_TINTS = {
    "page": ("#f4f5f7", "#0e1013"),
    "card": ("#ffffff", "#16191d"),
    "line": ("#dfe3e8", "#333a42"),
    "good": ("#e5f4ea", "#12301e"),
    "bad": ("#fbe9e7", "#3a1614"),
    "wait": ("#fdf0e0", "#37240d"),
    "calm": ("#eceff3", "#23282e"),
}


def _tints(dark: bool) -> str:
    return " ".join(f"--{name}: {pair[int(dark)]};" for name, pair in _TINTS.items())


_LIGHT, _DARK = (f"{variables(dark)} {_tints(dark)}" for dark in (False, True))

CSS = (
    f":root {{ color-scheme: light dark; --font: {FONT}; {_LIGHT} }}\n"
    f"@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}\n"
    f"@media print {{ :root {{ color-scheme: light; {_LIGHT} }} }}\n"
    + files("shpi.report").joinpath("report.css").read_text(encoding="utf-8")
)
