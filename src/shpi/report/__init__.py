"""Figures, and the HTML report of an evaluation."""

from __future__ import annotations

from shpi.report import svg

__all__ = ["svg"]
