"""The termination bonus V^mu: the value of a user from a context on, under the logging policy.

    LSTD              closed form over features, additive over shards; the default
    WithPast          any of them, with the user's past rewards beside the context
    FittedTD          a network by temporal differences (needs torch)
    BellmanResidual   the paper's estimate, biased (needs torch)
    BriefTD           the authors' release: five gradient steps (needs torch)
    Constant, Given   no bonus; a value that the user supplies
    Pessimistic       lowered where the log hardly covers a context
    with_backshift    rewards recovered from a value
    Complete          completes rewards that have not matured when the log ends, by their expected rest

A model is configuration; ``model.fit(logs, gamma=…, seed=…)`` gives V, a function of contexts [n, d].
"""

from shpi.values._lstd.choose import Choice
from shpi.values._lstd.moments import LstdSums
from shpi.values.backshift import backshift_rewards, with_backshift
from shpi.values.base import FittedValue, StateValues, ValueModel
from shpi.values.files import load_value, save_value, value_from_arrays, value_to_arrays
from shpi.values.levels import Select
from shpi.values.lstd import LSTD, LinearValue, solve
from shpi.values.mature import Complete
from shpi.values.neural.brief import BriefTD
from shpi.values.neural.descent import BellmanResidual, FittedTD
from shpi.values.neural.network import NetworkMap
from shpi.values.past import PastValue, WithPast, with_past
from shpi.values.pessimistic import LowerEnsemble, LowerLinear, Pessimistic
from shpi.values.simple import Constant, Given
from shpi.values.transitions import next_known, usable_transitions

__all__ = [
    "LSTD",
    "BellmanResidual",
    "BriefTD",
    "Choice",
    "Complete",
    "Constant",
    "FittedTD",
    "FittedValue",
    "Given",
    "LinearValue",
    "LowerEnsemble",
    "LowerLinear",
    "LstdSums",
    "NetworkMap",
    "PastValue",
    "Pessimistic",
    "Select",
    "StateValues",
    "ValueModel",
    "WithPast",
    "backshift_rewards",
    "load_value",
    "next_known",
    "save_value",
    "solve",
    "usable_transitions",
    "value_from_arrays",
    "value_to_arrays",
    "with_backshift",
    "with_past",
]
