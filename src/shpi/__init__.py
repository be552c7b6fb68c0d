"""shpi: improve a recommender's long-term metric from the logs it already has."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names are imported when they are first used, so that `import shpi` stays fast.
_HOME = {
    "ActionSpace": "shpi.data.actions",
    "Columns": "shpi.data.columns",
    "Complete": "shpi.values.mature",
    "DiscountedSum": "shpi.data.rewards",
    "Gate": "shpi.ope.gate",
    "LoggedData": "shpi.data.logged",
    "ReturnWithin": "shpi.data.rewards",
    "SessionsWithin": "shpi.data.rewards",
    "SumWithin": "shpi.data.rewards",
    "evaluate": "shpi.ope.evaluate",
    "load_policy": "shpi.policies",
}

__all__ = [
    "ActionSpace",
    "Columns",
    "Complete",
    "DiscountedSum",
    "Gate",
    "LoggedData",
    "ReturnWithin",
    "SessionsWithin",
    "SumWithin",
    "__version__",
    "evaluate",
    "load_policy",
]

if TYPE_CHECKING:
    from shpi.data.actions import ActionSpace
    from shpi.data.columns import Columns
    from shpi.data.logged import LoggedData
    from shpi.data.rewards import DiscountedSum, ReturnWithin, SessionsWithin, SumWithin
    from shpi.ope.evaluate import evaluate
    from shpi.ope.gate import Gate
    from shpi.policies import load_policy
    from shpi.values.mature import Complete


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in {"data", "envs", "errors", "features", "learners", "ope", "policies"}:
        return import_module(f"shpi.{name}")
    raise AttributeError(f"module 'shpi' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
