"""Off-policy evaluation: what a policy would bring, from the log of another one, with honest intervals.

evaluate        all of it in one call; also `shpi.evaluate`
problem         what is estimated, written down once
importance      IPS, SNIPS, PDIS, SNPDIS
intervals       clustered by user: Student-t, normal, bootstrap, empirical Bernstein
diagnostics     what can and cannot be trusted, in plain sentences
gate            may this be shipped? also `shpi.Gate`
results         what comes back: Estimate, Interval, Diagnostic, Verdict, Evaluation

An estimator is configuration; ``estimator.estimate(Problem.of(policy, logs, settings))`` gives an `Estimate`.
"""

from shpi.ope.candidates import Comparison, compare
from shpi.ope.checks.looks import count_look
from shpi.ope.diagnostics import diagnose
from shpi.ope.direct import FQE, DirectMethod
from shpi.ope.estimator import Estimator
from shpi.ope.evaluate import default_estimators, evaluate
from shpi.ope.facts import check_saved
from shpi.ope.gate import Gate, Guard
from shpi.ope.importance import IPS, PDIS, SNIPS, SNPDIS
from shpi.ope.intervals import interval_of
from shpi.ope.kstep import KStepSHPI
from shpi.ope.magic import MAGIC
from shpi.ope.marginal import MIS
from shpi.ope.oracle_fqe import OracleFQE
from shpi.ope.problem import Problem, Settings
from shpi.ope.results import (
    ActionShift,
    Diagnostic,
    Estimate,
    Evaluation,
    Factor,
    FirstStep,
    Interval,
    Segment,
    Verdict,
    Weights,
)
from shpi.ope.robust import DR, WDR
from shpi.ope.selection import Selection, select, variants
from shpi.ope.slope import SLOPE

__all__ = [
    "DR",
    "FQE",
    "IPS",
    "MAGIC",
    "MIS",
    "PDIS",
    "SLOPE",
    "SNIPS",
    "SNPDIS",
    "WDR",
    "ActionShift",
    "Comparison",
    "Diagnostic",
    "DirectMethod",
    "Estimate",
    "Estimator",
    "Evaluation",
    "Factor",
    "FirstStep",
    "Gate",
    "Guard",
    "Interval",
    "KStepSHPI",
    "OracleFQE",
    "Problem",
    "Segment",
    "Selection",
    "Settings",
    "Verdict",
    "Weights",
    "check_saved",
    "compare",
    "count_look",
    "default_estimators",
    "diagnose",
    "evaluate",
    "interval_of",
    "select",
    "variants",
]
