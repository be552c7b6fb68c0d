"""The page of results: what `shpi reproduce` wrote into the folder ``results``, put where `results.md` says.

The rows, the page and the figures of a run are committed once, in ``results``; the documentation reads them
from there. Without them the page says so, and the build goes on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "results"
MARK = "<!-- the page of the last run -->"
NOTHING = "No run of `make reproduce` is in this copy."


def insert(app: Any, name: str, source: list[str]) -> None:
    """Replace the mark on the page ``results`` (Sphinx: "source-read")."""
    if name == "results":
        source[0] = source[0].replace(MARK, text(FOLDER))
        app.env.note_dependency(str(FOLDER / "README.md"))


def text(folder: Path) -> str:
    """The page of a run without its title; its figures are looked for beside the page."""
    page = folder / "README.md"
    if not page.is_file():
        return NOTHING
    _, _, body = page.read_text(encoding="utf-8").partition("\n")
    return body.replace("](figures/", f"](../{folder.name}/figures/").strip()
