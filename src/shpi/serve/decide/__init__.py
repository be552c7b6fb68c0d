"""One decision, in microseconds: from a context in JSON to an action with its propensity.

context     JSON to a context vector, without a dataframe library
features    feature maps for one context
compiled    compile_policy: a policy for one context
batch       compile_batch: a policy for the contexts of several requests
choice      candidates, exploration floor, drawing an action
arms        which users get which policy
"""

from shpi.serve.decide.arms import Arm, Arms
from shpi.serve.decide.batch import compile_batch
from shpi.serve.decide.choice import Choice, Chooser
from shpi.serve.decide.compiled import CompiledPolicy, compile_policy
from shpi.serve.decide.context import ContextEncoder

__all__ = [
    "Arm",
    "Arms",
    "Choice",
    "Chooser",
    "CompiledPolicy",
    "ContextEncoder",
    "compile_batch",
    "compile_policy",
]
