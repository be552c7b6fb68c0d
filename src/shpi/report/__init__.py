"""Figures, and the HTML report of an evaluation."""

from __future__ import annotations

from shpi.report import svg
from shpi.report.html import render, write_html

__all__ = ["render", "svg", "write_html"]
