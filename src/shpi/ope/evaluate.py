"""`evaluate`: one policy, one held-out log; every estimator, with intervals, diagnostics and a verdict.

`shpi.ope.problem` defines the estimand. An estimator that fails is left out, and a fatal diagnostic
says why; if all fail, the first error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass, replace
from functools import partial
from typing import Any, Protocol

from shpi._core.progress import begin, expect, stages
from shpi._core.threads import one_thread
from shpi.advantages.windows import Horizon
from shpi.data.logged import LoggedData
from shpi.data.question import Metric
from shpi.data.question.words import question
from shpi.data.shards import ShardedLog
from shpi.errors import ConfigError, ShpiError
from shpi.ope import breakdown
from shpi.ope.checks.over_time import lift_over_time
from shpi.ope.diagnostics.diagnose import diagnose
from shpi.ope.diagnostics.weights import has_enough_support
from shpi.ope.estimators.base import Estimator
from shpi.ope.estimators.baseline import on_policy
from shpi.ope.estimators.direct import FQE, DirectMethod
from shpi.ope.estimators.importance import IPS, PDIS, SNIPS, SNPDIS
from shpi.ope.estimators.kstep import KStepSHPI
from shpi.ope.estimators.magic import MAGIC
from shpi.ope.estimators.marginal import MIS
from shpi.ope.estimators.oracle_fqe import OracleFQE
from shpi.ope.estimators.robust import DR, WDR
from shpi.ope.inference.per import PerUnit, check_per, counted_per
from shpi.ope.overlap import overlap
from shpi.ope.problem import IntervalMethod, Problem, Rewards, Settings, Truncated
from shpi.ope.results import Diagnostic, Estimate, Evaluation, Per, Verdict
from shpi.ope.verdict.events import events
from shpi.ope.verdict.longer import longest
from shpi.ope.verdict.whole_horizon import largest_mixture, whole
from shpi.passes import Executor
from shpi.protocols import Policy

# About what stages cost beside each other, in the storefront and in RecoGym: for the remaining time.
_COSTS = {"WDR": 3.0, "FQE": 2.0, "MIS": 1.8, "MAGIC": 1.5, "KStepSHPI": 1.2, "DirectMethod": 0.8}
_USUAL, _CHECKS = 0.1, {"checks": 3.0, "where the lift comes from": 4.0, "the verdict": 3.0}

UNSOUND = (IPS, PDIS, DR, MAGIC, MIS, FQE, DirectMethod, OracleFQE)  # these decide only if they are named


class Decides(Protocol):
    """Receives a finished evaluation and returns a verdict, like `shpi.ope.gate.Gate`."""

    def decide(self, evaluation: Evaluation, problem: Problem) -> Verdict | None:
        """A verdict, or None for none yet; the problem is there for guard metrics."""
        ...


@stages("evaluating")
@one_thread
def evaluate(
    policy: Policy,
    logs: LoggedData | ShardedLog,
    *,
    estimators: Sequence[Estimator] | None = None,
    main: str | None = None,
    gamma: float = 1.0,
    k: Horizon | None = None,
    horizon: int | None = None,
    truncated: Truncated | None = None,
    per: Per = "user",
    metric: Rewards | None = None,
    gate: Decides | None = None,
    confidence: float = 0.95,
    interval: IntervalMethod = "skewed",
    segment_by: Sequence[str] | None = None,
    details: bool = True,
    policy_name: str | None = None,
    seed: int = 0,
    executor: Executor | None = None,
) -> Evaluation:
    """Estimate the value of a policy, and its lift over the logging policy.

    Args:
        policy: what is evaluated: its own probabilities, exploration included.
        logs: held-out users, not those that the policy was learned from.
        estimators: None takes all that suit the log.
        main: the name of the estimator that decides; None takes the first that has enough effective users.
        gamma: the discount of the metric, 1 included.
        k: horizon of the k-step SHPI estimator among the default ones, see `default_estimators`.
        horizon: count at most so many decisions of each trajectory.
        truncated: what a trajectory that stops early means, "censored" or "complete"; None: what the log says
            (`LoggedData.endings`), and "complete" where it does not say.
        per: "user", or "decision" or "session" to divide by the number of them.
        metric: another reward: a metric of the log, or a function of a log; None is the log's reward.
        gate: gives the verdict.
        confidence: the level of all intervals and bounds.
        interval: how they are made.
        segment_by: context dimensions to break the lift down by; None takes the first that vary.
        details: False leaves out breakdown and short-term effect, which cost further passes.
        policy_name: for the report.
        seed: random seed of folds, features and bootstraps.
        executor: processes the log: `shpi.passes.Serial()`, which is this process and the default, or
            `shpi.passes.Processes(jobs=2)`. The results are bit-identical.
    """
    settings = Settings(
        gamma=gamma,
        horizon=horizon,
        truncated=truncated,
        confidence=confidence,
        interval=interval,
        seed=seed,
    )
    check_per(per)
    problem = Problem.of(policy, logs, settings, metric=metric, executor=executor)
    chosen = [counted_per(estimator, per) for estimator in _chosen(problem, estimators, k)]
    expect(
        {estimator.name: _COSTS.get(type(_inner(estimator)).__name__, _USUAL) for estimator in chosen}
        | _CHECKS
    )
    estimates, failures = _run(problem, chosen, partial(breakdown.variants, problem) if details else None)
    begin("checks")
    decisive = _main(main, chosen, estimates, problem)
    answer = next(estimate for estimate in estimates if estimate.name == decisive.name)
    # What the verdict will most likely need is computed in the same passes.
    foreseen: list[Callable[[], Any]] = [partial(whole, problem, per), partial(events, problem)]
    if gate is None or problem.propensity_mode == "absent":
        foreseen = []
    longer, mixture, diagnostics, explained, *_ = problem.all_of(
        [
            partial(longest, problem, answer),
            partial(largest_mixture, problem, answer, per),
            partial(diagnose, problem, estimates, decisive.name),
            partial(_details, problem, decisive, answer, segment_by, per) if details else dict,
            *foreseen,
        ]
    )
    named = Metric(what=problem.metric) if isinstance(problem.metric, str) else None
    evaluation = Evaluation(
        policy_name=policy_name or type(policy).__name__,
        metric=describe(problem, per),
        question=question(problem.raw_sample, named),
        estimates=tuple(estimates),
        main=decisive.name,
        longer=longer,
        mixture=mixture,
        diagnostics=(*failures, *diagnostics),
        configuration=_configuration(problem, chosen, per),
        fingerprint=logs.fingerprint(),
        users=problem.users,
        decisions=problem.decisions,
        **explained,
    )
    if gate is None:
        return evaluation
    begin("the verdict")
    return replace(evaluation, verdict=gate.decide(evaluation, problem))


def default_estimators(problem: Problem, k: Horizon | None = None) -> tuple[Estimator, ...]:
    """All estimators that suit the log; the two that may decide come first.

    Args:
        problem: the evaluation.
        k: horizon of the k-step estimator; None takes "session" where the log has sessions, else 4 steps.
    """
    if problem.propensity_mode == "absent":
        return (FQE(), DirectMethod())
    if problem.horizon == 1:
        return (WDR(), KStepSHPI(k=1), SNIPS(), IPS(), DR(), DirectMethod())
    several = problem.sessions > problem.trajectories
    chosen: Horizon = k if k is not None else "session" if several else min(4, problem.horizon)
    return (
        WDR(),
        KStepSHPI(k=chosen),
        SNPDIS(),
        SNIPS(),
        PDIS(),
        IPS(),
        DR(),
        MAGIC(),
        FQE(),
        DirectMethod(),
        MIS(),
    )


def describe(problem: Problem, per: Per = "user") -> str:
    """The metric in words."""
    counted = problem.head.counted
    name = problem.metric if isinstance(problem.metric, str) else "reward"
    if problem.metric is None and counted is not None:
        name = counted.metric.label
    discount = "" if problem.gamma == 1 else f", gamma {problem.gamma:g}"
    cut = "" if problem.settings.truncated == "censored" else ", the log taken as complete"
    return f"{name} per {per} over {problem.horizon:,} decision{'s' * (problem.horizon > 1)}{discount}{cut}"


def _chosen(
    problem: Problem, estimators: Sequence[Estimator] | None, k: Horizon | None
) -> tuple[Estimator, ...]:
    chosen = tuple(estimators) if estimators is not None else default_estimators(problem, k)
    for estimator in chosen:
        if isinstance(estimator, type) or not isinstance(estimator, Estimator):
            raise ConfigError(
                expected="estimators, such as shpi.ope.SNPDIS()",
                found=repr(estimator),
                remedy="make an instance: SNPDIS(), not SNPDIS",
            )
    names = [estimator.name for estimator in chosen]
    if not names or len(set(names)) < len(names):
        raise ConfigError(expected="at least one estimator, and distinct names", found=str(names))
    return chosen


def _run(
    problem: Problem, chosen: Sequence[Estimator], beside: Callable[[], Any] | None
) -> tuple[list[Estimate], list[Diagnostic]]:
    """The estimates, and the estimators that failed; ``beside``: further work in the same passes."""
    estimates: list[Estimate] = []
    failures: list[Diagnostic] = []
    first: ShpiError | None = None
    works = [partial(_estimated, estimator, problem) for estimator in chosen]
    results = problem.visits.scheduler.run(works if beside is None else [*works, beside])
    for estimator, result in zip(chosen, results[: len(chosen)], strict=True):
        if isinstance(result, ShpiError):
            first, error = first or result, result
            failures.append(
                Diagnostic(
                    name="no estimate",
                    severity="fatal",
                    sentence=f"{estimator.name} has no answer: {error}",
                    estimator=estimator.name,
                )
            )
        elif isinstance(result, Exception):
            raise result
        else:
            estimates.append(result)
    if not estimates and first is not None:
        raise first
    return estimates, failures


def _estimated(estimator: Estimator, problem: Problem) -> Estimate:
    estimate = estimator.estimate(problem)
    begin(estimator.name)  # what is done is counted: they are under way side by side
    return estimate


def _main(
    name: str | None, chosen: Sequence[Estimator], estimates: Sequence[Estimate], problem: Problem
) -> Estimator:
    """The estimator that decides: the named one, or the first with enough effective users.

    Without a name it is the first with a sufficient effective sample size (`has_enough_support`), estimators
    over all decisions before those over some; if there is none, the one with the most effective users. The
    choice does not use rewards, so lucky estimates are not favoured. Model-based estimators, and plain ones,
    whose intervals do not hold with heavy weights, decide only if there are no others, and never ship.
    """
    by_name = {estimate.name: estimate for estimate in estimates}
    known = {estimator.name: estimator for estimator in chosen}
    if name is None:
        sound = [
            key
            for key, estimator in known.items()
            if key in by_name and not isinstance(_inner(estimator), UNSOUND)
        ]
        able = sound or list(by_name)
        enough = [key for key in able if has_enough_support(problem, by_name[key])]
        whole = [key for key in enough if by_name[key].steps is None]
        most = max(able, key=lambda key: by_name[key].effective_users)
        name = (whole or enough or [most])[0]
    if name not in by_name:
        raise ConfigError(
            expected=f"a main estimator among those with an answer, {sorted(by_name)}", found=repr(name)
        )
    return known[name]


def _details(
    problem: Problem, decisive: Estimator, answer: Estimate, segment_by: Sequence[str] | None, per: Per
) -> dict[str, Any]:
    """The breakdown of the lift: fields of an `Evaluation`."""
    next_reward = PerUnit(SNPDIS(k=1, name="next reward"))  # every decision as a bandit, contexts as logged
    segments, periods, *others = problem.all_of(
        [
            partial(breakdown.segments, problem, answer, segment_by),
            lambda: lift_over_time(problem, answer, on_policy(problem).influence),
            partial(_unless_refused, partial(breakdown.decomposition, problem, decisive), ())
            if per == "user"
            else tuple,
            partial(breakdown.action_shifts, problem),
            partial(_unless_refused, lambda: next_reward.estimate(problem)),
            partial(_unless_refused, partial(overlap, problem)),
        ]
    )
    names = ("decomposition", "actions_gained_lost", "short_term", "overlap")
    return {"segments": (*segments, *periods), **dict(zip(names, others, strict=True))}


def _unless_refused(work: Callable[[], Any], otherwise: Any = None) -> Any:
    """Leave out a detail that fails: if the log is the cause, the estimators' failures report it."""
    try:
        return work()
    except ShpiError:
        return otherwise


def _configuration(problem: Problem, chosen: Sequence[Estimator], per: Per) -> dict[str, Any]:
    described = []
    for estimator in chosen:
        inner, settings = _inner(estimator), {}
        if is_dataclass(inner):
            settings = {key: repr(value) for key, value in vars(inner).items() if key != "name"}
        described.append({"name": estimator.name, "kind": type(inner).__name__, **settings})
    return {
        "settings": asdict(problem.settings),
        "horizon": problem.horizon,
        "per": per,
        "estimators": described,
    }


def _inner(estimator: Any) -> Any:
    return estimator.estimator if isinstance(estimator, PerUnit) else estimator
