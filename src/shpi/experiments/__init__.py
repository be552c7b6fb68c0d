"""The paper's tables and figures, and further experiments, one file each.

    catalogue   the experiments by name
    paper       the paper's tables and figures; `paper.appendix` has those of the appendix
    beyond      experiments that the paper does not have
    _run        cells, workers, resumable runs, rows on disk
    _page       statistics, tables and claims; Markdown, HTML and SVG

From the command line: ``shpi reproduce NAME|all``.
"""

from __future__ import annotations

from shpi.experiments.catalogue import find, names

__all__ = ["find", "names"]
