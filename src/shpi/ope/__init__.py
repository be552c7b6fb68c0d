"""Off-policy evaluation: what a policy would bring, from the log of another one, with honest intervals.

evaluate        all of it in one call; also `shpi.evaluate`
results         what comes back: Estimate, Interval, Diagnostic, Verdict, Evaluation
"""

from shpi.ope.results import (
    ActionShift,
    Diagnostic,
    Estimate,
    Evaluation,
    Factor,
    Interval,
    Segment,
    Verdict,
    Weights,
)

__all__ = [
    "ActionShift",
    "Diagnostic",
    "Estimate",
    "Evaluation",
    "Factor",
    "Interval",
    "Segment",
    "Verdict",
    "Weights",
]
