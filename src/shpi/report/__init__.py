"""Figures (`shpi.report.svg`), and the HTML report of an evaluation (`shpi.report.html`)."""

from __future__ import annotations

from shpi.report import svg

__all__ = ["svg"]
