"""shpi: improve a recommender's long-term metric from the logs it already has."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shpi import _moved

__version__ = "0.2.0"

_moved.install()

# Names are imported when they are first used, so that `import shpi` stays fast.
_HOME = {
    "ActionSpace": "shpi.data.actions",
    "Columns": "shpi.data.columns",
    "Comparison": "shpi.ope.candidates",
    "Complete": "shpi.values.mature",
    "DiscountedSum": "shpi.data.rewards",
    "Evaluation": "shpi.ope.results",
    "Events": "shpi.data.tables.events",
    "Gate": "shpi.ope.gate",
    "Guard": "shpi.ope.gate",
    "LoggedData": "shpi.data.logged",
    "Metric": "shpi.data.question",
    "Mixture": "shpi.policies",
    "OfflineSHPI": "shpi.learners.offline",
    "OnlineSHPI": "shpi.learners.online.shpi",
    "ReturnWithin": "shpi.data.rewards",
    "SessionsWithin": "shpi.data.rewards",
    "SumWithin": "shpi.data.rewards",
    "UniformPolicy": "shpi.policies",
    "compare": "shpi.ope.candidates",
    "evaluate": "shpi.ope.evaluate",
    "load_policy": "shpi.policies",
    "save_policy": "shpi.policies",
}

__all__ = [
    "ActionSpace",
    "Columns",
    "Comparison",
    "Complete",
    "DiscountedSum",
    "Evaluation",
    "Events",
    "Gate",
    "Guard",
    "LoggedData",
    "Metric",
    "Mixture",
    "OfflineSHPI",
    "OnlineSHPI",
    "ReturnWithin",
    "SessionsWithin",
    "SumWithin",
    "UniformPolicy",
    "__version__",
    "compare",
    "evaluate",
    "load_policy",
    "save_policy",
]

if TYPE_CHECKING:
    from shpi.data.actions import ActionSpace
    from shpi.data.columns import Columns
    from shpi.data.logged import LoggedData
    from shpi.data.question import Metric
    from shpi.data.rewards import DiscountedSum, ReturnWithin, SessionsWithin, SumWithin
    from shpi.data.tables.events import Events
    from shpi.learners.offline import OfflineSHPI
    from shpi.learners.online.shpi import OnlineSHPI
    from shpi.ope.candidates import Comparison, compare
    from shpi.ope.evaluate import evaluate
    from shpi.ope.gate import Gate, Guard
    from shpi.ope.results import Evaluation
    from shpi.policies import Mixture, UniformPolicy, load_policy, save_policy
    from shpi.values.mature import Complete


_ROOMS = {"data", "envs", "errors", "features", "learners", "ope", "oracles", "policies", "report", "values"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _ROOMS:
        return import_module(f"shpi.{name}")
    raise AttributeError(f"module 'shpi' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
