"""Diagnostics of an evaluation's reliability, one file per group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shpi._core.lazy import lazy_names

if TYPE_CHECKING:
    from shpi.ope.diagnostics.diagnose import diagnose, fatal_for

__all__ = ["diagnose", "fatal_for"]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "shpi.ope.diagnostics.diagnose"))
