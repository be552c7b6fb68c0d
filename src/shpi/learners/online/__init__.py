"""Learners that act: online SHPI, a bandit, deep SARSA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shpi._core.lazy import lazy_names

if TYPE_CHECKING:
    from shpi.learners.online.shpi import (
        FEATURE_ROWS,
        FEW_ACTIONS,
        TESTED_ROUNDS,
        TUNE_ROWS,
        OnlineSHPI,
        curved_oracle,
    )

__all__ = ["FEATURE_ROWS", "FEW_ACTIONS", "TESTED_ROUNDS", "TUNE_ROWS", "OnlineSHPI", "curved_oracle"]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "shpi.learners.online.shpi"))
