"""One decision: a context as JSON to an action with its propensity, in microseconds.

context     JSON to a context vector, without a table engine
features    feature maps for one context
compiled    compile_policy: a policy for one context
batch       compile_batch: a policy for the contexts of several requests
choice      candidates, exploration floor, the draw
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
