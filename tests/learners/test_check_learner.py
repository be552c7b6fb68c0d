"""The conformance suites pass what is right, and notice what is not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shpi.errors import DataError, EpisodeError
from shpi.learners import BehaviourCloning, Learner, LoggedBehaviour, OfflineSHPI, OnlineLearner
from shpi.oracles import Ridge
from shpi.policies import FunctionScorer, Greedy, LinearScorer, Softmax, UniformPolicy
from shpi.testing import check_learner, check_online_learner
from shpi.testing.learner import digest
from shpi.testing.tastes import DIRECTIONS, LEVELS, Tastes, attained, true_rewards

FAST = Ridge.exact()


@dataclass
class Regression:
    """Least squares of the rewards, then greedy; with one fault."""

    fault: str = "none"
    fits: int = 0

    def fit(self, logs):
        self.fits += 1
        if self.fault == "mutates":
            logs.rewards[0] += 1
        if logs.rewards is None:
            if self.fault == "no clear error":
                raise TypeError("NoneType has no attribute")
            raise DataError(expected="rewards", found="none")
        rewards = np.nan_to_num(logs.rewards) if self.fault == "swallows NaN" else logs.rewards
        prepared = FAST.prepare(logs, seed=0)
        scorer = prepared.fit(rewards)
        if self.fault == "chance":
            noise = np.random.default_rng().normal(size=scorer.weights.shape)
            scorer = LinearScorer(scorer.weights + 1e-3 * noise, scorer.features)
        if self.fault == "remembers" and self.fits > 1:
            scorer = LinearScorer(-scorer.weights, scorer.features)
        policy: Any = Greedy(scorer)
        if self.fault == "uniform":
            policy = UniformPolicy(logs.n_actions)
        if self.fault == "cannot save":
            policy = Softmax(FunctionScorer(scorer.scores, logs.n_actions, 2), temperature=0.1)
        return Disobedient(policy) if self.fault == "disobeys" else policy


@dataclass
class Disobedient:
    inner: Any

    @property
    def n_actions(self):
        return self.inner.n_actions

    def action_probs(self, contexts, candidates=None):
        return self.inner.action_probs(contexts)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("mutates", "changed the log"),
        ("chance", "gave another policy"),
        ("remembers", "attains|gave another policy"),
        ("uniform", "below 0.2"),
        ("disobeys", "never a candidate|not allowed"),
        ("no clear error", "without rewards raised TypeError"),
        ("swallows NaN", "NaN among the rewards must raise"),
    ],
)
def test_the_suite_finds(fault, message):
    with pytest.raises(AssertionError, match=message):
        check_learner(Regression(fault), users=120)


def test_without_a_fault_the_learner_passes():
    check_learner(Regression(), users=120, attains=0.9)
    assert isinstance(Regression(), Learner)


def test_a_policy_that_cannot_be_saved_must_say_so():
    check_learner(Regression("cannot save"), users=120, saves=False, hard_logs=False)
    with pytest.raises(AssertionError, match="expected to fail"):
        check_learner(Regression(), users=120, saves=False)


@pytest.mark.parametrize(
    "learner",
    [
        BehaviourCloning(),
        LoggedBehaviour(),
        OfflineSHPI(k=2, gamma=0.9, oracle=FAST),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_learners_that_exist_pass(learner):
    check_learner(learner)


# ---------------------------------------------------------------------- online


@dataclass(frozen=True)
class Watching:
    """Watches uniform decisions, then acts like `Regression`; with one fault."""

    fault: str = "none"

    def fit(self, simulator):
        if self.fault == "goes on":
            simulator.step(np.zeros(1, dtype=np.int64))
        logs = simulator.rollout(UniformPolicy(simulator.n_actions), 150, seed=3)
        return Regression("chance" if self.fault == "chance" else "none").fit(logs)


def test_the_online_suite():
    check_online_learner(Watching(), attains=0.9)
    assert isinstance(Watching(), OnlineLearner)
    with pytest.raises(AssertionError, match="gave another policy"):
        check_online_learner(Watching("chance"))
    with pytest.raises(EpisodeError):
        check_online_learner(Watching("goes on"))


# ---------------------------------------------------------------------- the world of the suites


def test_the_world_is_what_it_says():
    world = Tastes(masked=True)
    logs = world.log(400, seed=1)
    assert logs.candidates is not None
    assert not logs.candidates[:, -1].any()
    assert (np.diff(logs.offsets) == 1).sum() > 50
    assert logs.terminated.any()
    assert not logs.terminated.all()
    expected = true_rewards(logs.contexts)[np.arange(len(logs)), logs.actions]
    assert np.std(logs.rewards - expected) == pytest.approx(0.3, rel=0.05)
    assert abs(np.mean(logs.rewards - expected)) < 0.03
    later = world.rollout(UniformPolicy(4), 7, seed=5, first=3)
    whole = world.rollout(UniformPolicy(4), 10, seed=5)
    np.testing.assert_array_equal(later.rewards, whole.select(np.arange(3, 10)).rewards)


def test_uniform_attains_0_and_the_best_policy_1():
    contexts, masks = Tastes(masked=True).fresh(50, seed=0)
    best = Greedy(FunctionScorer(true_rewards, 4, 2))
    for candidates in (None, masks):
        assert attained(UniformPolicy(4), contexts, candidates) == pytest.approx(0)
        assert attained(best, contexts, candidates) == pytest.approx(1)
    np.testing.assert_allclose(true_rewards(contexts), LEVELS + contexts @ DIRECTIONS.T, atol=1e-7)


def test_the_digest_sees_every_array(tmp_path: Path):
    logs = Tastes(masked=True).log(20, seed=0)
    assert logs.candidates is not None
    other = logs.candidates.copy()
    other[0, 0] = ~other[0, 0]
    assert digest(logs) == digest(replace(logs))
    assert digest(logs) != digest(replace(logs, candidates=other))
