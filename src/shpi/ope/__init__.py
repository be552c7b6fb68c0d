"""Off-policy evaluation: the value of a policy from the log of another one, with confidence intervals.

evaluate        all of it in one call; also `shpi.evaluate`
candidates      several policies on one log; also `shpi.compare`
gate            the decision to ship; also `shpi.Gate`; `verdict` has its criteria
selection       choose among configurations by held-out estimates
results         result types: Estimate, Interval, Diagnostic, Verdict, Evaluation
problem         the estimand
estimators      IPS, SNIPS, PDIS, SNPDIS, DM, FQE, DR, WDR, MIS, MAGIC, SLOPE, k-step SHPI
models          outcome models of the estimators
inference       weights, means per step, intervals clustered by user
diagnostics     diagnostics of log and weights, in sentences
checks          checks of one assumption each: users, propensities, time, looks

An estimator is configuration; ``estimator.estimate(Problem.of(policy, logs, settings))`` gives an `Estimate`.
"""

from shpi.ope._log.facts import check_saved
from shpi.ope.candidates import Comparison, compare
from shpi.ope.checks.looks.file import count_look
from shpi.ope.diagnostics.diagnose import diagnose
from shpi.ope.estimators.base import Estimator
from shpi.ope.estimators.direct import FQE, DirectMethod
from shpi.ope.estimators.importance import IPS, PDIS, SNIPS, SNPDIS
from shpi.ope.estimators.kstep import KStepSHPI
from shpi.ope.estimators.magic import MAGIC
from shpi.ope.estimators.marginal import MIS
from shpi.ope.estimators.oracle_fqe import OracleFQE
from shpi.ope.estimators.robust import DR, WDR
from shpi.ope.estimators.slope import SLOPE
from shpi.ope.evaluate import default_estimators, evaluate
from shpi.ope.gate import Gate, Guard
from shpi.ope.inference.intervals import interval_of
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
from shpi.ope.selection import Selection, select, variants

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
