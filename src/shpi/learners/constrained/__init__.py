"""Learners under a constraint of support: SPIBB, MBS, and SHPI under either."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shpi._core.lazy import lazy_names

if TYPE_CHECKING:
    from shpi.learners.constrained.baseline import (
        BLOCK,
        COUNT,
        DENSITY,
        FEW_CELLS,
        PSEUDO_COUNT,
        Constraint,
        Rows,
        constrain,
        limited,
        limited_means,
        pseudo_counts,
        table_behaviour,
        table_oracle,
        table_value,
    )

__all__ = [
    "BLOCK",
    "COUNT",
    "DENSITY",
    "FEW_CELLS",
    "PSEUDO_COUNT",
    "Constraint",
    "Rows",
    "constrain",
    "limited",
    "limited_means",
    "pseudo_counts",
    "table_behaviour",
    "table_oracle",
    "table_value",
]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "shpi.learners.constrained.baseline"))
