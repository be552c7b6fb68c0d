"""Propensities that can be false: each way they go wrong is found, and right ones are left alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.ope import SNIPS, Problem, evaluate
from shpi.ope.checks.balance.joint_test import about_balance
from shpi.policies import UniformPolicy
from shpi.testing.hard_worlds import WORLDS

DAY = 86_400_000_000


def log(seed: int, users: int = 1_500, steps: int = 3, actions: int = 3, *, whole: bool = True) -> LoggedData:
    """Probabilities depend on the context; every decision is its own draw."""
    rng = np.random.default_rng(seed)
    n = users * steps
    contexts = rng.standard_normal((n, 2))
    logits = np.outer(contexts[:, 0], np.linspace(-0.5, 0.5, actions))
    mu = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    chosen = (mu.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    start = rng.integers(0, 30 * DAY, size=users)
    return LoggedData.from_arrays(
        contexts=contexts, actions=chosen, n_actions=actions, offsets=np.arange(0, n + 1, steps),
        propensities=mu[np.arange(n), chosen], behaviour=mu if whole else None, rewards=rng.random(n),
        times=(start[:, None] + DAY * np.arange(steps)).ravel(), time_unit="us",
    )  # fmt: skip


def severity(logs: LoggedData) -> str:
    problem = Problem.of(UniformPolicy(logs.n_actions), logs)
    severities = {diagnostic.name: diagnostic.severity for diagnostic in about_balance(problem)}
    return severities["propensity balance"]


def chosen_again(logs: LoggedData, where: np.ndarray, actions: np.ndarray | int) -> LoggedData:
    """Actions replaced after their probabilities were logged; the log keeps what mu says of the new ones."""
    changed = logs.actions.copy()
    changed[where] = actions
    assert logs.behaviour is not None
    said = logs.behaviour[np.arange(len(logs)), changed]
    return replace(logs, actions=changed, propensities=said)


@pytest.mark.parametrize("whole", [True, False])
def test_right_propensities_raise_few_alarms(whole):
    alarms = sum(severity(log(seed, 400, whole=whole)) != "fine" for seed in range(200))
    assert alarms <= 7  # of 200 at a level of 1 %: 8 or more have a chance of 0.1 %


def test_estimated_propensities_that_fit_raise_few_alarms():
    absent = {"propensities": None, "behaviour": None, "propensity_mode": "absent"}
    bare = [replace(log(seed, 400), **absent) for seed in range(60)]
    alarms = sum(severity(logs.with_estimated_propensities(seed=0)) != "fine" for logs in bare)
    assert alarms <= 4


@pytest.mark.parametrize("whole", [True, False])
def test_overrides_are_found(whole):
    logs = log(0)
    rng = np.random.default_rng(1)
    some = rng.random(len(logs)) < 0.08
    changed = chosen_again(logs, some, 2)
    assert severity(changed if whole else replace(changed, behaviour=None)) == "fatal"


def test_overrides_that_even_out_are_found_by_time_and_context():
    logs = log(0)
    rng = np.random.default_rng(1)
    some = rng.random(len(logs)) < 0.15
    late = logs.times > np.quantile(logs.times, 0.5)
    assert severity(chosen_again(logs, some, np.where(late, 0, 2)[some])) == "fatal"
    high = logs.contexts[:, 1] > 0
    assert severity(chosen_again(logs, some, np.where(high, 0, 2)[some])) == "fatal"


def test_overrides_by_earlier_rewards_are_a_warning_since_rewards_may_look_ahead():
    logs = log(0)
    later = (np.random.default_rng(1).random(len(logs)) < 0.3) & (logs.steps > 0)
    paid = np.append(False, logs.rewards[:-1] > 0.5)
    assert severity(chosen_again(logs, later, np.where(paid, 0, 2)[later])) == "warning"


def test_users_who_keep_their_arm_are_found():
    logs = log(0, steps=4)
    uniform = np.full((len(logs), 3), 1 / 3)
    arm = np.random.default_rng(1).integers(3, size=logs.n_trajectories)[logs.trajectory_of_row]
    sticky = replace(
        logs, behaviour=uniform, propensities=np.full(len(logs), 1 / 3), actions=arm.astype(np.int32)
    )
    assert severity(sticky) == "fatal"


def test_many_rare_actions_with_right_propensities_are_fine():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        chosen = rng.integers(2_000, size=3_000)
        logs = LoggedData.from_arrays(
            contexts=rng.standard_normal((3_000, 1)), actions=chosen, n_actions=2_000,
            offsets=np.arange(3_001), propensities=np.full(3_000, 1 / 2_000), rewards=rng.random(3_000),
        )  # fmt: skip
        assert severity(logs) == "fine"


@pytest.mark.parametrize("sample", ["the whole log", "held-out users"])
@pytest.mark.parametrize("law", ["uniform", "zipf"])
def test_a_table_that_misses_actions_by_chance_is_not_called_wrong(law, sample):
    """The actions are those that the table shows; 1/2,000 is right where it shows 1,550 of 2,000."""
    probs = np.full(2_000, 1.0) if law == "uniform" else 1 / np.arange(1.0, 2_001)
    probs /= probs.sum()
    for factor, right in ((1.0, True), (0.5, False)):
        rng = np.random.default_rng(1)
        shown, chosen = np.unique(rng.choice(2_000, 6_000, p=probs), return_inverse=True)
        logs = LoggedData.from_arrays(
            contexts=rng.standard_normal((6_000, 1)), actions=chosen, n_actions=len(shown),
            offsets=np.arange(6_001), propensities=factor * probs[shown[chosen]], rewards=rng.random(6_000),
        )  # fmt: skip
        assert len(shown) < 1_950
        if sample == "held-out users":
            _, logs = logs.split_users(0.5, seed=0)
        evaluation = evaluate(UniformPolicy(logs.n_actions), logs, estimators=[SNIPS()], details=False)
        told = {diagnostic.name: diagnostic for diagnostic in evaluation.diagnostics}
        assert (told["propensity balance"].severity == "fine") == right
        assert ("propensities are too small" in told["mean weight"].sentence) != right


@pytest.mark.parametrize(
    ("name", "least"),
    [("hidden column", 0.5), ("overridden decisions", 0.9), ("rule changes with time", 0.0)],
)
def test_hard_worlds(name, least):
    alarms = [severity(WORLDS[name].make(500 + seed).logs) == "fatal" for seed in range(12)]
    assert np.mean(alarms) >= least
    if least == 0:  # the model of estimated propensities knows the time
        assert np.mean(alarms) <= 0.1


def test_days_that_share_a_coin_are_found_and_not_called_wrong():
    for seed in range(4):
        logs = WORLDS["arms switched by day"].make(seed).logs
        problem = Problem.of(UniformPolicy(2), logs)
        severities = {diagnostic.name: diagnostic.severity for diagnostic in about_balance(problem)}
        assert severities == {"switched by day": "warning", "propensity balance": "fine"}


def test_a_sample_has_whole_users_of_a_long_log():
    problem = Problem.of(UniformPolicy(3), log(0))
    few = problem.sample(500)
    assert 500 <= len(few.logs) <= 503
    np.testing.assert_array_equal(few.rewards, few.logs.rewards)
    assert (np.diff(few.logs.offsets) == 3).all()
    assert (np.diff(few.logs.users) > 0).all()
    assert problem.sample() is next(problem.chunks())
