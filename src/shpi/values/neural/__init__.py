"""Values from networks: the paper's Bellman residual, temporal differences (need torch)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shpi._core.lazy import lazy_names

if TYPE_CHECKING:
    from shpi.values.neural.descent import (
        BellmanResidual,
        FittedTD,
        network_value,
        write_residual_gradient,
        write_td_gradient,
    )

__all__ = ["BellmanResidual", "FittedTD", "network_value", "write_residual_gradient", "write_td_gradient"]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "shpi.values.neural.descent"))
