"""Off-policy evaluation: what a policy would bring, from the log of another one, with honest intervals.

evaluate        all of it in one call; also `shpi.evaluate`
problem         what is estimated, written down once
importance      IPS, SNIPS, PDIS, SNPDIS
intervals       clustered by user: Student-t, normal, bootstrap, empirical Bernstein
results         what comes back: Estimate, Interval, Diagnostic, Verdict, Evaluation

An estimator is configuration; ``estimator.estimate(Problem.of(policy, logs, settings))`` gives an `Estimate`.
"""

from shpi.ope.estimator import Estimator
from shpi.ope.evaluate import default_estimators, evaluate
from shpi.ope.importance import IPS, PDIS, SNIPS, SNPDIS
from shpi.ope.intervals import interval_of
from shpi.ope.problem import Problem, Settings
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
    "IPS",
    "PDIS",
    "SNIPS",
    "SNPDIS",
    "ActionShift",
    "Diagnostic",
    "Estimate",
    "Estimator",
    "Evaluation",
    "Factor",
    "Interval",
    "Problem",
    "Segment",
    "Settings",
    "Verdict",
    "Weights",
    "default_estimators",
    "evaluate",
    "interval_of",
]
