"""The online bandit: conformance, the best one-step policy, and bad input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from shpi.errors import ConfigError, DataError
from shpi.learners import OnlineBandit
from shpi.oracles import Ridge
from shpi.protocols import Step
from shpi.testing import check_online_learner
from shpi.testing.tastes import Tastes, attained


@pytest.mark.parametrize("target", ["direct", "mtr"])
def test_it_passes_the_suite(target):
    check_online_learner(OnlineBandit(users=120, rounds=3, oracle=Ridge.exact(), target=target), attains=0.95)


def test_the_default_oracle_finds_the_best_one_step_policy():
    world = Tastes()
    policy = OnlineBandit(users=300, rounds=2).fit(world)
    assert attained(policy, world.fresh(500, seed=9)[0]) > 0.98


def test_vw_passes_the_suite():
    pytest.importorskip("vowpalwabbit")
    check_online_learner(OnlineBandit.paper(users=120, rounds=2), attains=0.7)


@dataclass
class Counting(Tastes):
    """Remembers who was served."""

    served: tuple = ()

    def rollout(self, policy, n, seed, *, first=0):
        self.served = (*self.served, (type(policy).__name__, first, n, seed))
        return super().rollout(policy, n, seed, first=first)


def test_every_user_is_served_once_and_the_first_round_is_random():
    world = Counting()
    OnlineBandit(users=50, rounds=4, oracle=Ridge.exact(), seed=7).fit(world)
    names, firsts, counts, seeds = zip(*world.served, strict=True)
    assert names == ("UniformPolicy", *(["EpsilonGreedy"] * 3))
    assert sum(counts) == 50
    assert firsts == tuple(np.cumsum((0, *counts[:-1])))
    assert len(set(seeds)) == 1
    assert seeds[0] != 7


@dataclass
class Broken(Tastes):
    """Pays NaN."""

    def step(self, actions) -> Step:
        step = super().step(actions)
        return step._replace(rewards=np.full_like(step.rewards, np.nan))


def test_a_simulator_that_pays_nan_is_an_error():
    with pytest.raises(DataError, match="finite rewards"):
        OnlineBandit(users=10, rounds=1).fit(Broken())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds of at least 1"),
        ({"users": 3, "rounds": 5}, "at least one user per round"),
        ({"epsilon": 1.5}, r"epsilon in \[0, 1\]"),
        ({"target": "dr"}, "target among direct, mtr"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ConfigError, match=message):
        OnlineBandit(**options)
