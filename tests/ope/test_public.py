"""What the estimators say about public logs whose answers are known. Skipped where the files are absent."""

from dataclasses import replace

import numpy as np
import pytest

from shpi.data.datasets import open_bandit
from shpi.data.logged import LoggedData
from shpi.data.rewards import ReturnWithin
from shpi.features import Identity
from shpi.ope import IPS, SNIPS, WDR, Evaluation, Gate, Problem, Settings, diagnose, evaluate, interval_of
from shpi.ope.diagnostics.diagnose import fatal_for
from shpi.policies import ConstantPolicy, UniformPolicy
from tests.public_logs import public_log


def single_decisions(logs, rows, contexts):
    """A bandit's view: every decision alone, several of them by the same user."""
    return LoggedData.from_arrays(
        contexts=contexts,
        actions=logs.actions[rows],
        rewards=logs.rewards[rows],
        propensities=logs.propensities[rows],
        behaviour=None if logs.behaviour is None else logs.behaviour[rows],
        n_actions=logs.n_actions,
        offsets=np.arange(len(rows) + 1),
        users=logs.user_codes[logs.trajectory_of_row][rows],
    )


def per_decision(estimate, logs):
    """Value, interval and lift bound of one decision; estimates are per user."""
    each = len(logs) / logs.n_users
    interval = estimate.value_interval
    return estimate.value / each, interval.lower / each, interval.upper / each


# ---------------------------------------------------------------------- HeartSteps


@pytest.mark.parametrize("estimator", [SNIPS(), WDR(features=Identity(intercept=False))], ids=str)
def test_the_effect_of_a_walking_suggestion(data_dir, estimator):
    """The trial's own analysis: 0.1312 on log(0.5 + steps), over available points."""
    trial = public_log("heartsteps", data_dir)
    rows = np.flatnonzero(trial.candidates[:, 1])
    before = trial.schema.dimensions.index("log_steps_before")
    logs = single_decisions(trial, rows, trial.contexts[rows][:, [before]])
    sent, kept = (
        estimator.estimate(Problem.of(ConstantPolicy(np.array(probs)), logs, Settings()))
        for probs in ([0.0, 1.0], [1.0, 0.0])
    )
    each = len(logs) / logs.n_users
    effect = (sent.lift - kept.lift) / each
    interval = interval_of(effect, (sent.influence_lift - kept.influence_lift) / each, method="skewed")
    assert interval.lower < 0.1312 < interval.upper
    assert interval.width < 0.35
    assert effect == pytest.approx(0.1312, abs=0.015)


# ---------------------------------------------------------------------- Open Bandit


class ByPosition:
    """How often a log shows each item at each position."""

    def __init__(self, logs):
        self.columns = [logs.schema.dimensions.index(f"position={j}") for j in (1, 2, 3)]
        counts = np.zeros((3, logs.n_actions))
        np.add.at(counts, (logs.contexts[:, self.columns].argmax(axis=1), logs.actions), 1)
        self.table = counts / counts.sum(axis=1, keepdims=True)

    @property
    def n_actions(self):
        return self.table.shape[1]

    def action_probs(self, contexts, candidates=None):
        return self.table[contexts[:, self.columns].argmax(axis=1)]


@pytest.mark.parametrize("campaign", ["all", "men", "women"])
def test_each_shop_policy_is_found_in_the_log_of_the_other(data_dir, campaign):
    bts = public_log(f"open-bandit-{campaign}-bts", data_dir)
    random = open_bandit(data_dir, campaign=campaign, policy="random", schema=bts.schema)
    directions = [(ByPosition(bts), random, bts)]
    if campaign != "women":  # see the next test
        directions.append((UniformPolicy(bts.n_actions), bts, random))
    for policy, logs, other in directions:
        problem = Problem.of(policy, logs, Settings())
        for estimator in (SNIPS(), IPS()):
            estimate = estimator.estimate(problem)
            assert estimate.value_interval.lower < other.rewards.mean() < estimate.value_interval.upper
            assert 0 < estimate.value < 0.01
        assert estimate.effective_users > 300


def test_two_effective_users_decide_nothing(data_dir):
    bts = public_log("open-bandit-women-bts", data_dir)
    problem = Problem.of(UniformPolicy(46), bts, Settings())
    estimates = tuple(estimator.estimate(problem) for estimator in (SNIPS(), IPS()))
    assert estimates[0].effective_users == pytest.approx(2.1, abs=0.1)
    diagnostics = tuple(diagnose(problem, estimates, "SNIPS"))
    assert "effective users" in {diagnostic.name for diagnostic in fatal_for(diagnostics, "SNIPS")}
    assert estimates[0].value_interval.width > 0.1  # the interval says the same: anything is possible
    evaluation = Evaluation(
        estimates=estimates, diagnostics=diagnostics, users=problem.users,
        policy_name="uniform", metric="click", main="SNIPS",
    )  # fmt: skip
    assert not Gate().decide(evaluation).ship


# ---------------------------------------------------------------------- KuaiRand


@pytest.fixture(scope="module")
def random_log(data_dir):
    return public_log("kuairand-random", data_dir)


def bandit(logs):
    observed = logs.reward_observed
    rows = np.arange(len(logs)) if observed is None else np.flatnonzero(observed)
    return single_decisions(logs, rows, np.ones((len(rows), 1)))


@pytest.mark.parametrize("horizon", ["1d", "7d"])
def test_no_single_tag_brings_users_back(random_log, horizon):
    """The negative control: every tag as a policy of its own, the bounds valid for all of them together.

    Checks can only hold a policy back, so they are made for the tags that the bounds let pass.
    """
    logs = bandit(random_log.with_rewards(ReturnWithin(horizon=horizon, pays="decision")))
    problems = [Problem.of(ConstantPolicy(tag), logs, Settings()) for tag in np.eye(logs.n_actions)]
    named = {"users": logs.n_users, "policy_name": "tag", "metric": "return", "main": "SNIPS"}
    evaluations = [Evaluation(estimates=(SNIPS().estimate(problem),), **named) for problem in problems]
    by_bounds = Gate().decide_many(evaluations)
    assert len(by_bounds) == 31
    checked = [
        replace(evaluation, diagnostics=tuple(diagnose(problem, evaluation.estimates, "SNIPS")))
        if verdict.ship
        else evaluation
        for evaluation, problem, verdict in zip(evaluations, problems, by_bounds, strict=True)
    ]
    assert not any(verdict.ship for verdict in Gate().decide_many(checked))


def test_the_best_five_tags_of_other_users_bring_clicks(random_log):
    """About 0.233 against 0.177, in several splits; the gate ships the policy in most of them."""
    values, shipped = [], 0
    for seed in range(4):
        train, held_out = random_log.split_users(0.5, seed=seed)
        shown = np.maximum(np.bincount(train.actions, minlength=31), 1)
        rate = np.bincount(train.actions, weights=train.rewards, minlength=31) / shown
        policy = ConstantPolicy(np.isin(np.arange(31), np.argsort(-rate)[:5]) / 5)
        logs = bandit(held_out)
        evaluation = evaluate(policy, logs, estimators=[SNIPS()], gate=Gate(), details=False)
        value, lower, upper = per_decision(evaluation.decisive, logs)
        assert lower < 0.233 < upper + 0.02
        assert evaluation.decisive.lift_interval.lower > 0
        values.append(value)
        shipped += evaluation.verdict.ship
    assert 0.205 < np.mean(values) < 0.245
    assert shipped == 4
