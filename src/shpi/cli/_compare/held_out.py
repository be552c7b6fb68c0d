"""Evaluates policies on held-out users, for the table of `shpi compare LOG`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shpi.errors import ShpiError

if TYPE_CHECKING:  # imported when the verb runs, so that `shpi --help` is quick
    from shpi.data.logged import LoggedData
    from shpi.data.shards import ShardedLog
    from shpi.ope import Comparison
    from shpi.ope.results import Evaluation
    from shpi.protocols import Policy


def judge(
    policies: Mapping[str, Policy], logs: LoggedData | ShardedLog, seed: int, **passing: Any
) -> dict[str, dict[str, Any]]:
    """Evaluate policies: by name, the lift, its interval, the estimator and the verdict, or the problem.

    Args:
        policies: the policies by name.
        logs: log of the held-out users.
        seed: random seed of the evaluation.
        passing: ``executor`` for `shpi.evaluate`, if the default is not wanted.
    """
    problems: dict[str, str] = {}
    comparison: Comparison | None = None
    try:
        comparison = _compared(policies, logs, seed, **passing)
    except ShpiError:  # a policy that cannot be evaluated gets a note in its row; the others go on
        able: dict[str, Policy] = {}
        for name, policy in policies.items():
            try:
                _compared({name: policy}, logs, seed, **passing)
                able[name] = policy
            except ShpiError as error:
                problems[name] = f"cannot be judged: {error}"
        comparison = _compared(able, logs, seed, **passing) if able else None
    figures = (
        {}
        if comparison is None
        else {evaluation.policy_name: _figures(evaluation) for evaluation in comparison.evaluations}
    )
    return figures | {name: {"problem": words} for name, words in problems.items()}


def _compared(
    policies: Mapping[str, Policy], logs: LoggedData | ShardedLog, seed: int, **passing: Any
) -> Comparison:
    from shpi.ope import Gate, compare

    return compare(
        policies, logs, Gate(seed=seed), estimators=deciding(logs), details=False, seed=seed, **passing
    )


def deciding(logs: LoggedData | ShardedLog) -> list[Any] | None:
    """The estimators that may decide the verdict; None (all of them) if the log has no propensities."""
    from shpi import ope
    from shpi.cli.verbs.evaluate import usual_k

    if logs.propensity_mode == "absent":
        return None
    return [ope.WDR(), ope.KStepSHPI(k=usual_k(logs)), ope.SNPDIS()]


def _figures(evaluation: Evaluation) -> dict[str, Any]:
    estimate = evaluation.lead.estimate
    return {
        "lift": estimate.lift,
        "lift_lower": estimate.lift_interval.lower,
        "lift_upper": estimate.lift_interval.upper,
        "estimator": estimate.name,
        "verdict": None if evaluation.verdict is None else evaluation.verdict.decision,
    }
