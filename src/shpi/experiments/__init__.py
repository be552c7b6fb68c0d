"""The paper's tables and figures, and more, each in a file of its own.

    cells, settings     what is run: one method on one log, with the paper's sizes
    work, worlds        how a cell is run
    runner, processes   in a few processes, resumable, one failure does not stop the rest
    store               rows on disk
    stats, compare      mean ± sd, interquartile means, paired tests; tables and claims
    page, figures       Markdown, HTML and SVG
    catalogue           the experiments by name

From the command line: ``shpi reproduce NAME|all``.
"""

from __future__ import annotations

from shpi.experiments.catalogue import find, names

__all__ = ["find", "names"]
