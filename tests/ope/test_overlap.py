import json

import numpy as np
import pytest

from shpi.ope import SNPDIS, Problem, evaluate
from shpi.ope.overlap import overlap
from tests.ope.worlds import H, small_world

MDP, MU, PI = small_world()


@pytest.fixture(scope="module")
def logs():
    return MDP.log(MU, 400, H, seed=0)


def test_every_decision_is_counted_once(logs):
    figures = overlap(Problem.of(MDP.policy(PI), logs))
    assert sum(figures.logged.counts) == len(logs)
    assert sum(figures.policy.counts) + figures.never == len(logs)
    assert sum(figures.ratios.counts) + figures.never == len(logs)
    low, high = figures.logged.edges[17:19]
    within = int(((logs.propensities >= low) & (logs.propensities < high)).sum())
    assert figures.logged.counts[17] == within > 0


def test_effective_users_are_those_of_the_estimator(logs):
    problem = Problem.of(MDP.policy(PI), logs)
    figures = overlap(problem)
    weights = SNPDIS().estimate(problem).weights
    assert figures.steps == tuple(range(1, H + 1))
    assert 1 / np.mean(1 / np.array(figures.effective_users)) == pytest.approx(weights.ess)
    assert min(figures.effective_users) == pytest.approx(weights.worst)


def test_the_logging_policy_loses_nobody(logs):
    figures = overlap(Problem.of(MDP.policy(MU), MDP.log(MU, 200, H, seed=1, ragged=False)))
    assert figures.effective_users == pytest.approx([200.0] * H)
    assert figures.logged == figures.policy
    assert figures.never == 0


def test_what_the_policy_never_does_is_counted(logs):
    never = PI.copy()
    never[:, 0] = 0
    never /= never.sum(axis=1, keepdims=True)
    assert overlap(Problem.of(MDP.policy(never), logs)).never == int((logs.actions == 0).sum())


def test_steps_that_nobody_reaches_are_empty(logs):
    always = np.zeros_like(PI)
    always[:, 0] = 1.0
    few = logs.select(
        np.flatnonzero(logs.actions[logs.offsets[:-1]] != 0)
    )  # pi never does what these began with
    assert overlap(Problem.of(MDP.policy(always), few)).effective_users == (0.0,) * H


def test_an_evaluation_has_it_where_there_are_propensities(logs):
    evaluation = evaluate(MDP.policy(PI), logs, estimators=[SNPDIS()])
    assert evaluation.overlap is not None
    assert json.dumps(evaluation.to_json()["overlap"], allow_nan=False)
    assert evaluate(MDP.policy(PI), logs, estimators=[SNPDIS()], details=False).overlap is None
