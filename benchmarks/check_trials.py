"""Single trials of the gate's checks, for `bench_gate_checks` to count."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.learners import ContextualBandit
from shpi.ope import SNIPS, SNPDIS, WDR, Gate, Problem, Settings, evaluate
from shpi.ope.checks.balance.joint_test import about_balance
from shpi.ope.checks.over_time import change_of
from shpi.ope.checks.training_users import about_training_users
from shpi.ope.results import Verdict
from shpi.ope.verdict.deliberation import Deliberation
from shpi.testing.hard_worlds import WORLDS, Case, looks

MOST_USERS = 60_000  # most users of a fresh log
METHODS = ("each look by itself", "asymptotic", "betting")


@dataclass(frozen=True, kw_only=True)
class Found:
    """The result of one trial: the kind of case, flags and numbers by name."""

    kind: str
    flags: dict[str, bool]
    numbers: dict[str, float] = field(default_factory=dict)


def kind_of(name: str, case: Case) -> str:
    """The name of a case, with the strength of the problem if a world has several."""
    setting = case.setting
    if name.endswith("overridden decisions"):
        share = float(setting.chain.initial[1] * setting.mu[0, 0])
        return f"{name}, {share:.0%} of the decisions"
    if name == "hidden column":
        effect = float(setting.mu[1, 1] - setting.mu[0, 1])
        chance = float(setting.mu[0, 1] + effect / 2)
        above = chance + effect / 2
        odds = above / (1 - above) / (chance / (1 - chance))
        return f"{name}, odds changed by about {round(odds, 1):g}"
    return name


def alarm(task: tuple[str, int]) -> Found:
    """The checks that raise an alarm on the log of a world."""
    name, seed = task
    case = WORLDS[name].make(seed)
    problem = Problem.of(case.policy, case.logs)
    diagnostics = {diagnostic.name: diagnostic.severity for diagnostic in about_balance(problem)}
    change = None
    if case.horizon <= 10:
        change = change_of(problem, SNPDIS().estimate(problem))
    return Found(
        kind=kind_of(name, case),
        flags={
            "propensities": diagnostics["propensity balance"] == "fatal",
            "switched": "switched by day" in diagnostics,
            "change": change is not None and change.clear,
        },
    )


def ship(task: tuple[str, int, float]) -> Found:
    """For (world, seed, true lift): whether the gate ships without its checks, and with them."""
    name, seed, lift = task
    case = WORLDS[name].make(seed, lift=lift)
    options: dict[str, Any] = {"estimators": [WDR()], "details": False, "seed": seed, **case.options}
    gate = Gate()
    evaluation = evaluate(case.policy, case.logs, gate=gate, **options)
    problem = Problem.of(case.policy, case.logs, horizon_settings(case))
    plain = Deliberation(gate=gate, evaluation=evaluation, problem=problem).verdict()
    assert evaluation.verdict is not None
    return Found(kind=kind_of(name, case), flags={"before": plain.ship, "after": evaluation.verdict.ship})


def horizon_settings(case: Case) -> Settings:
    """The settings of an evaluation of this case."""
    return Settings(horizon=case.horizon)


def daily(task: tuple[int, float]) -> Found:
    """For (seed, true lift): the first of 30 days on which the gate ships, by method; 0: never."""
    seed, lift = task
    case = WORLDS["no lift, looked at daily"].make(seed, lift=lift)
    first = dict.fromkeys(METHODS, 0)
    last = False
    for day, log in enumerate(looks(case), 1):
        if log.n_users < 50:
            continue
        evaluation = evaluate(
            case.policy, log, estimators=[SNIPS()], gate=Gate(), details=False, **case.options
        )
        assert evaluation.verdict is not None
        last = evaluation.verdict.ship
        if not last:  # the other methods are stricter
            continue
        problem = Problem.of(case.policy, log)
        for method in METHODS:
            anytime: Any = False if method == METHODS[0] else method
            if not first[method] and Gate(anytime=anytime).decide(evaluation, problem).ship:
                first[method] = day
    return Found(
        kind=f"{lift:g}",
        flags={**{method: day > 0 for method, day in first.items()}, "last look": last},
        numbers={method: float(day) for method, day in first.items()},
    )


def needed(task: tuple[str, int]) -> Found:
    """For (world, seed): if the gate asks for more users, whether it ships on a fresh log of that size.

    The true lift is random, between 0 and 1.5 times the lift worth finding in that world.
    """
    name, seed = task
    world = WORLDS[name]
    lift = world.better * np.random.default_rng(seed).uniform(0, 1.5)
    try:
        case = world.make(seed, max(world.users // 4, 50), lift=lift)
    except ConfigError:  # a random world in which this policy cannot have such a lift
        return Found(kind=name, flags={"asked": False, "shipped": False})
    verdict = _verdict(case, seed)
    asked = verdict.decision == "need more data" and verdict.users_prove
    if not asked or verdict.users_needed is None or verdict.users_needed > MOST_USERS:
        return Found(kind=name, flags={"asked": False, "shipped": False})
    again = _verdict(case.fresh(seed, verdict.users_needed), seed)
    return Found(
        kind=name,
        flags={"asked": True, "shipped": again.ship},
        numbers={"users": float(verdict.users_needed)},
    )


def _verdict(case: Case, seed: int) -> Verdict:
    evaluation = evaluate(
        case.policy, case.logs, estimators=[WDR()], gate=Gate(), details=False, seed=seed, **case.options
    )
    assert evaluation.verdict is not None
    return evaluation.verdict


def own_users(seed: int) -> Found:
    """A bandit learned from half of the users of a log without effects, judged on them and on the others."""
    rng = np.random.default_rng(seed)
    users, width, actions = 400, 20, 5
    chosen = rng.integers(actions, size=users)
    logs = LoggedData.from_arrays(
        contexts=rng.standard_normal((users, width)), actions=chosen, n_actions=actions,
        rewards=rng.standard_normal(users), propensities=np.full(users, 1 / actions),
        behaviour=np.full((users, actions), 1 / actions), offsets=np.arange(users + 1),
        terminated=np.ones(users, dtype=bool), users=1_000_003 * (1 + rng.permutation(users)),
    )  # fmt: skip
    train, held_out = logs.split_users(0.5, seed=seed)
    policy = ContextualBandit().fit(train)
    less = train.select(np.arange(1, train.n_trajectories))
    flags = {}
    for name, log in (("own users", train), ("own users but one", less), ("other users", held_out)):
        evaluation = evaluate(policy, log, estimators=[SNIPS()], gate=Gate(), details=False)
        assert evaluation.verdict is not None
        flags[name] = evaluation.verdict.ship
        diagnostics = tuple(
            diagnostic for diagnostic in evaluation.diagnostics if diagnostic.name != "training users"
        )
        bare = Deliberation(
            gate=Gate(),
            evaluation=replace(evaluation, diagnostics=diagnostics),
            problem=Problem.of(policy, log),
        ).verdict()
        flags[f"{name}, unchecked"] = bare.ship
    return Found(kind="training users", flags=flags)


def cost(task: tuple[str, int]) -> Found:
    """CPU seconds of a whole evaluation, and of its checks."""
    name, seed = task
    case = WORLDS[name].make(seed)
    began = time.process_time()
    evaluation = evaluate(case.policy, case.logs, gate=Gate(), seed=seed, **case.options)
    whole = time.process_time() - began
    problem = Problem.of(case.policy, case.logs, horizon_settings(case))
    began = time.process_time()
    about_balance(problem)
    about_training_users(problem)
    change_of(problem, evaluation.decisive)
    checks = time.process_time() - began
    return Found(kind=name, flags={}, numbers={"whole": whole, "checks": checks})
