"""Treatment of HIV patients: the simulator, its differential equation, two integrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shpi._core.lazy import lazy_names

if TYPE_CHECKING:
    from shpi.envs.hiv.simulator import HIV, INTEGRATORS

__all__ = ["HIV", "INTEGRATORS"]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "shpi.envs.hiv.simulator"))
