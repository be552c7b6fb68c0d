"""A tiny plotting kit: functions that take arrays and return one SVG as a string. No dependencies.

    from shpi.report import svg

    svg.forest(labels, centers, lowers, uppers, title=…, bounds=…, main=0)      estimates with intervals
    svg.bars(labels, {"mu": …, "pi": …}, title=…)                               horizontal bars
    svg.histogram(edges, {"mu": counts, "pi": counts}, title=…, log_x=True)     distributions
    svg.lines(x, {"SHPI": y}, title=…, bands={"SHPI": (low, high)})             lines with bands
    svg.boxplots(labels, groups, title=…, marks=published)                      values over seeds
    svg.write("figure.svg", svg.lines(…))                                       whole or not at all

What all of them share:

* ``title`` and ``description`` are read out by screen readers; say in the description what the chart shows.
* A string works inside an HTML page and as a standalone file. Colours are CSS variables with fallbacks
  (``--shpi-paper, -ink, -soft, -grid, -axis, -c0 … -c7``; `css_variables` sets all of them); a standalone
  file follows the reader's light or dark setting, and prints in light.
* Meaning never depends on colour alone: symbols differ in shape, lines in dashes, bars in their numbers.
* ``width`` is in px. A sheet of 680 px suits a page, one of 340 px a phone: draw both and let CSS choose
  rather than shrinking the text.
* All words are escaped. Numbers that are not finite are left out or end in an arrow; nothing breaks.
* The same input gives the same bytes.
"""

from __future__ import annotations

from pathlib import Path

from shpi.report.files import write_whole
from shpi.report.plots.bars import bars
from shpi.report.plots.distribution import boxplots, histogram
from shpi.report.plots.forest import ForestNames, forest
from shpi.report.plots.lines import lines
from shpi.report.plots.theme import variables as css_variables

__all__ = ["ForestNames", "bars", "boxplots", "css_variables", "forest", "histogram", "lines", "write"]


def write(path: str | Path, chart: str) -> Path:
    """Write a chart to a file, which appears complete or not at all."""
    return write_whole(path, chart + "\n")
