"""RecoGym for many users at once: the simulator, its world and users, the authors' release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shpi._core.lazy import lazy_names

if TYPE_CHECKING:
    from shpi.envs.recogym.simulator import RecoGym

__all__ = ["RecoGym"]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "shpi.envs.recogym.simulator"))
