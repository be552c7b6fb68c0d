"""How often a policy was evaluated on a log, and bounds that hold at every look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shpi._core.lazy import lazy_names

if TYPE_CHECKING:
    from shpi.ope.checks.looks.file import Look, Looks, count_look, digest_of

__all__ = ["Look", "Looks", "count_look", "digest_of"]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "shpi.ope.checks.looks.file"))
