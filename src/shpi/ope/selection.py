r"""Choose k, beta, features, an oracle, or whole learners, without selection bias.

The estimate of the winner on the users that selected it is biased upwards. So users are
split twice, and no user is used for two purposes:

    all users  ─┬─ inner users ─┬─ folds: every learner is fitted without a fold and judged on it
                │               └─ the one with the largest lower bound of the lift wins
                │                  and is fitted again to all inner users
                └─ confirm users: judge the winner, and have seen neither a fit nor a choice

A candidate's lift is the mean over folds of the estimates of its fits, and its error follows from the
influences of all inner users, each in its own fold. Candidates are compared by lower bounds, not estimates,
so a noisy candidate is not chosen by luck. The results for the winner come from the confirm users alone, so
they are as valid as with a single candidate, and a gate needs no correction.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from shpi._core.progress import progress_bar
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.errors import ConfigError, DataError, ShpiError
from shpi.learners.base import Learner, fit_anywhere
from shpi.ope.diagnostics.diagnose import fatal_for
from shpi.ope.division import Division, divided
from shpi.ope.evaluate import Decides, default_estimators, evaluate
from shpi.ope.inference.intervals import interval_of, standard_error
from shpi.ope.problem import Problem, Settings
from shpi.ope.results import Evaluation
from shpi.passes import Executor
from shpi.protocols import Float64Array, Policy

MAY_DECIDE = 3  # number of default estimators, from the first, that may decide


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of one candidate on the inner users. For the winner it is biased upwards."""

    name: str
    lift: float | None = None  # None: it could not be fitted, or not be judged
    error: float | None = None
    lower_bound: float | None = None
    problem: str | None = None  # why not, or which diagnostic forbids to trust it


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """The winner, and its evaluation on users that had no part in the choice."""

    winner: str
    policy: Policy  # of the winner, fitted to all inner users
    evaluation: Evaluation  # on the confirm users: the honest one
    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        lines = ["candidate: lift on the selection users, lower bound"]
        for trial in self.trials:
            if trial.lift is None or trial.lower_bound is None:
                lines.append(f"  {trial.name}: {trial.problem}")
                continue
            mark = " *" if trial.name == self.winner else ""
            note = f"; {trial.problem}" if trial.problem else ""
            lines.append(f"  {trial.name}{mark}: {trial.lift:+.5g}, {trial.lower_bound:+.5g}{note}")
        return "\n".join([*lines, "", "the winner on held-out users, not used to choose it:", ""]) + str(
            self.evaluation
        )


def variants(learner: Any, **choices: Sequence[Any]) -> dict[str, Any]:
    """All combinations of some settings of a learner, by name: ``variants(OfflineSHPI(), k=(1, 5))``."""
    if not is_dataclass(learner) or isinstance(learner, type):
        raise ConfigError(expected="a learner made of settings", found=repr(learner), where="variants")
    known = [field.name for field in fields(learner) if field.init]
    unknown = sorted(set(choices) - set(known))
    if unknown or not choices or not all(len(values) for values in choices.values()):
        raise ConfigError(
            expected=f"at least one value for settings among {', '.join(known)}",
            found=", ".join(unknown) or repr(choices),
            where="variants",
        )
    learners = {}
    for values in product(*choices.values()):
        settings = dict(zip(choices, values, strict=True))
        learners[", ".join(f"{key}={value}" for key, value in settings.items())] = replace(
            learner, **settings
        )
    return learners


def select(
    learners: Mapping[str, Learner],
    logs: LoggedData | ShardedLog,
    *,
    confirm: float = 0.3,
    folds: int = 3,
    gate: Decides | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    progress: bool | None = False,
    executor: Executor | None = None,
    **options: Any,
) -> Selection:
    """Choose among learners by the held-out lower bound of the lift, and evaluate the winner on other users.

    A log in shards is divided into new shards in a temporary folder (``TMPDIR``), which takes as much room as
    the log. Learners sample it like any log in shards; trials and evaluation are bit-identical to the
    same log in memory, if the learners are (`OfflineSHPI` is).

    Args:
        learners: by name; `variants` makes those of a grid.
        logs: all users, in memory or in shards.
        confirm: the share of the users that judge the winner and nothing else.
        folds: folds of the inner users.
        gate: gives the verdict on the winner.
        confidence: confidence level of the lower bounds.
        seed: random seed of the splits.
        progress: show a progress bar; None shows it in a terminal only.
        executor: processes the log; None is this process. The result is the same.
        options: options of `shpi.evaluate`, such as gamma, horizon, metric.
    """
    if not learners or folds < 2 or not 0 < confirm < 1:
        raise ConfigError(
            expected="at least one learner, at least 2 folds and confirm in (0, 1)",
            found=f"{len(learners)} learners, {folds} folds, confirm {confirm}",
            where="select",
        )
    first, second = (int(s.generate_state(1)[0]) for s in np.random.SeedSequence(seed).spawn(2))
    settings = {"confidence": confidence, "seed": seed, "executor": executor, **options}
    with divided(logs, confirm, folds, (first, second), executor) as division:
        if settings.get("horizon") is None:  # the same question to every fold
            settings["horizon"] = division.longest_of_all
        with progress_bar("choose", len(learners) * folds, progress) as advance:
            trials = [
                _trial(name, learner, division, settings, advance) for name, learner in learners.items()
            ]
        winner = best(trials)
        policy = fit_anywhere(learners[winner], division.inner, executor)
        evaluation = evaluate(policy, division.confirm, gate=gate, **{"policy_name": winner, **settings})
        _let_go(division.confirm)
    return Selection(winner=winner, policy=policy, evaluation=evaluation, trials=tuple(trials))


def best(trials: Sequence[Trial]) -> str:
    """The name of the trial with the largest lower bound, of those that can be trusted if there are any."""
    judged = [trial for trial in trials if trial.lower_bound is not None]
    if not judged:
        reasons = "; ".join(f"{trial.name}: {trial.problem}" for trial in trials[:3])
        raise DataError(expected="a candidate that can be judged", found=f"none ({reasons})", where="select")
    able = [trial for trial in judged if trial.problem is None] or judged
    return max(able, key=lambda trial: trial.lower_bound or 0.0).name


def _trial(
    name: str,
    learner: Learner,
    division: Division,
    settings: Mapping[str, Any],
    advance: Any,
) -> Trial:
    """Fit without each fold, judge on it, and put the folds together."""
    total, influences, problem = 0.0, [], None
    for fold in range(division.folds):
        try:
            policy = fit_anywhere(learner, division.without(fold), settings["executor"])
            evaluation = _judged(policy, division.fold(fold), settings)
        except ShpiError as error:
            return Trial(name=name, problem=str(error))
        finally:
            advance(1)
            _let_go(division.confirm)
        total += evaluation.users * evaluation.decisive.lift
        influences.append(evaluation.decisive.influence_lift)
        stops = fatal_for(evaluation.diagnostics, evaluation.main)
        problem = problem or (stops[0].sentence if stops else None)
    influence: Float64Array = np.concatenate(influences)  # [U] a user's own estimate is that of its fold
    lift = total / len(influence)
    level, method = settings["confidence"], settings.get("interval", "t")
    return Trial(
        name=name,
        lift=lift,
        error=standard_error(influence),
        lower_bound=interval_of(lift, influence, level=level, method=method).lower_bound,
        problem=problem,
    )


def _let_go(logs: LoggedData | ShardedLog) -> None:
    """An evaluation of shards has mapped arrays on the disk until its objects, a cycle, are collected."""
    if isinstance(logs, ShardedLog):
        gc.collect()


def _judged(policy: Policy, logs: LoggedData | ShardedLog, settings: Mapping[str, Any]) -> Evaluation:
    """By the estimators that may decide, unless others are named."""
    chosen = dict(settings)
    if chosen.get("estimators") is None:
        shape = Settings(horizon=chosen["horizon"], truncated=chosen.get("truncated"))
        problem = Problem.of(policy, logs, shape, executor=chosen["executor"])
        chosen["estimators"] = default_estimators(problem, chosen.get("k"))[:MAY_DECIDE]
    chosen.update(details=False)
    return evaluate(policy, logs, **chosen)
