"""The world of KuaiRand, a short-video app, fitted to its public logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shpi._core.lazy import lazy_names

if TYPE_CHECKING:
    from shpi.envs.kuairand.world import (
        N_ACTIONS,
        NOTES,
        RETURN_DAYS,
        USER_COLUMNS,
        KuaiRandLogs,
        Proxy,
        fit_kuairand,
        kuairand_logs,
        kuairand_world,
    )

__all__ = [
    "NOTES",
    "N_ACTIONS",
    "RETURN_DAYS",
    "USER_COLUMNS",
    "KuaiRandLogs",
    "Proxy",
    "fit_kuairand",
    "kuairand_logs",
    "kuairand_world",
]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "shpi.envs.kuairand.world"))
