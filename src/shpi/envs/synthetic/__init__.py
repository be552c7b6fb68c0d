"""The synthetic task of the paper's appendix: the simulator, references, the authors' release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shpi._core.lazy import lazy_names

if TYPE_CHECKING:
    from shpi.envs.synthetic.simulator import (
        PEAK,
        PEAK_VALUE,
        START,
        Synthetic,
        fraction_attained,
        improvement,
        landscape,
    )

__all__ = ["PEAK", "PEAK_VALUE", "START", "Synthetic", "fraction_attained", "improvement", "landscape"]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "shpi.envs.synthetic.simulator"))
