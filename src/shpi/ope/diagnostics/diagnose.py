"""Run all diagnostics of an evaluation; each is one plain sentence with a severity.

    fine      checked, nothing found
    note      worth knowing, no reason to stop
    warning   the answer may mislead; look before you ship
    fatal     the estimator (or, where none is named, the log) cannot carry a decision; a gate never ships

    diagnostics.weights        effective users, weight tails, mean weight, per estimator
    diagnostics.log            users, support
    checks.table               the value of the logging policy against the table's own mean
    diagnostics.propensities   the logging policy evaluated on its own log, calibration
    diagnostics.answers        range, top users, disagreement, sensitivity to clipping, late value
    diagnostics.steps          sensitivity to k

Each threshold is defined next to its use, with its reason. None depends on the size of the lift, so better
policies are checked as strictly as worse ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from shpi.errors import ConfigError
from shpi.ope.checks.endings import about_endings
from shpi.ope.checks.over_time import about_time
from shpi.ope.checks.table import about_table
from shpi.ope.checks.training_users import about_training_users
from shpi.ope.diagnostics.answers import about_answers
from shpi.ope.diagnostics.log import about_log
from shpi.ope.diagnostics.weights import about_weights
from shpi.ope.problem import Problem
from shpi.ope.results import Diagnostic, Estimate, Severity

_ORDER: dict[Severity, int] = {"fatal": 0, "warning": 1, "note": 2, "fine": 3}


def diagnose(problem: Problem, estimates: Sequence[Estimate], main: str) -> tuple[Diagnostic, ...]:
    """All diagnostics of an evaluation: the most severe first, and the main estimator's before others.

    Args:
        problem: the evaluation problem.
        estimates: estimates of all estimators that succeeded.
        main: name of the estimator that decides.
    """
    decisive = [estimate for estimate in estimates if estimate.name == main]
    if len(decisive) != 1:
        raise ConfigError(
            expected=f"a main estimator among {[estimate.name for estimate in estimates]}", found=repr(main)
        )
    groups = problem.all_of(
        [
            partial(about_log, problem, decisive[0]),
            partial(about_table, problem),
            partial(about_endings, problem),
            partial(about_training_users, problem),
            partial(about_time, problem, decisive[0]),
            *(partial(about_weights, problem, item) for item in estimates),
            partial(about_answers, problem, estimates, decisive[0]),
        ]
    )
    diagnostics = [diagnostic for group in groups for diagnostic in group]
    return tuple(
        sorted(diagnostics, key=lambda item: (_ORDER[item.severity], item.estimator not in (None, main)))
    )


def fatal_for(diagnostics: Sequence[Diagnostic], estimator: str) -> tuple[Diagnostic, ...]:
    """The fatal diagnostics for this estimator: its own, and those about the log."""
    return tuple(
        diagnostic
        for diagnostic in diagnostics
        if diagnostic.severity == "fatal" and diagnostic.estimator in (None, estimator)
    )
