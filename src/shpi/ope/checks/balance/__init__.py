"""Balance tests: were the actions chosen with the propensities of the log?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shpi._core.lazy import lazy_names

if TYPE_CHECKING:
    from shpi.ope.checks.balance.joint_test import (
        EARLIER,
        HARMLESS,
        LEAST_VARIANCE,
        MOST_FEATURES,
        NAME,
        SEEN,
        Finding,
        Imbalance,
        about_balance,
        clearest,
    )

__all__ = [
    "EARLIER",
    "HARMLESS",
    "LEAST_VARIANCE",
    "MOST_FEATURES",
    "NAME",
    "SEEN",
    "Finding",
    "Imbalance",
    "about_balance",
    "clearest",
]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "shpi.ope.checks.balance.joint_test"))
