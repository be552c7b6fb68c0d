"""Named settings are SHPI, bit for bit; the logging policy as a learner."""

from __future__ import annotations

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features import Identity
from shpi.learners import (
    ConservativePolicyIteration,
    ContextualBandit,
    LoggedBehaviour,
    OfflineSHPI,
    PolicyGradientAdvantage,
    SessionRL,
)
from shpi.oracles import Ridge
from shpi.policies import UniformPolicy
from shpi.testing import check_learner
from shpi.testing.tabular import random_mdp
from shpi.values import LSTD, Constant

TABLE = Ridge.exact()
SETTINGS = {"oracle": TABLE, "iterations": 3}
UNTESTED = SETTINGS | {"tested": False}  # which session RL is by itself
BONUS = {"value": LSTD(features=Identity(), ridge=1.0)}


@pytest.fixture(scope="module")
def logs() -> LoggedData:
    mdp = random_mdp(6, 3, seed=2, gamma=0.9, noise=0.2)
    return mdp.log(np.full((6, 3), 1 / 3), 300, horizon=12, seed=1)


def same(left, right):
    contexts = np.eye(6)
    np.testing.assert_array_equal(left.action_probs(contexts), right.action_probs(contexts))
    assert [i.advantage_mean for i in left.history] == [i.advantage_mean for i in right.history]


def test_session_rl_is_shpi_without_a_bonus(logs):
    named = SessionRL(gamma=0.9, settings=SETTINGS, seed=4).fit(logs)
    same(named, OfflineSHPI(k="session", value=Constant(0.0), gamma=0.9, seed=4, **UNTESTED).fit(logs))


def test_a_mu_is_shpi_with_k_1(logs):
    named = PolicyGradientAdvantage(gamma=0.9, settings=UNTESTED | BONUS, seed=4).fit(logs)
    same(named, OfflineSHPI(k=1, gamma=0.9, seed=4, **UNTESTED, **BONUS).fit(logs))


def test_a_pi_is_shpi_with_the_longest_k(logs):
    named = ConservativePolicyIteration(gamma=0.9, settings=UNTESTED | BONUS, seed=4).fit(logs)
    for k in (12, 1000):  # a window never goes beyond its trajectory
        same(named, OfflineSHPI(k=k, gamma=0.9, seed=4, **UNTESTED, **BONUS).fit(logs))


def test_the_three_differ(logs):
    bonus = UNTESTED | BONUS
    settings = {SessionRL: SETTINGS, PolicyGradientAdvantage: bonus, ConservativePolicyIteration: bonus}
    first = [
        make(gamma=0.9, settings=chosen).fit(logs).history[1].advantage_deviation
        for make, chosen in settings.items()
    ]
    assert len({round(value, 6) for value in first}) == 3


def test_session_rl_with_k_1_ranks_actions_as_a_bandit(logs):
    settings = {"oracle": TABLE, "iterations": 1}
    by_session = SessionRL(k=1, settings=settings).fit(logs).policy.scorer.scores(np.eye(6))
    by_bandit = ContextualBandit(oracle=TABLE, support=None).fit(logs).scorer.scores(np.eye(6))
    # Rows whose next context is unknown are left out by one and not by the other.
    assert (by_session.argmax(axis=1) == by_bandit.argmax(axis=1)).all()
    np.testing.assert_allclose(by_session, by_bandit, atol=0.15)


@pytest.mark.parametrize("make", [SessionRL, PolicyGradientAdvantage, ConservativePolicyIteration])
def test_they_pass_the_suite(make):
    check_learner(make(gamma=0.9, settings={"oracle": TABLE}), users=150, attains=0.2)


@pytest.mark.parametrize("make", [SessionRL, PolicyGradientAdvantage, ConservativePolicyIteration])
def test_the_paper_s_form(make):
    plan = make(paper=True, settings={"iterations": 2})
    shpi = plan.shpi(7) if make is ConservativePolicyIteration else plan.shpi()
    assert (shpi.form, shpi.clip, shpi.tested, shpi.iterations) == ("raw", "product", False, 2)


def test_a_name_cannot_be_contradicted():
    with pytest.raises(ConfigError, match="that the name leaves open, found k"):
        PolicyGradientAdvantage(settings={"k": 3})
    with pytest.raises(ConfigError, match="leaves open, found value"):
        SessionRL(settings={"value": Constant(1.0)})
    with pytest.raises(ConfigError, match="leaves open, found tested"):
        SessionRL(settings={"tested": True})
    with pytest.raises(ConfigError, match="settings of OfflineSHPI"):
        ConservativePolicyIteration(settings={"horizon": 3})
    with pytest.raises(ConfigError, match="iterations of at least 1"):
        SessionRL(settings={"iterations": 0})


def test_the_logging_policy_is_returned_as_it_is(logs):
    mu = UniformPolicy(3)
    assert LoggedBehaviour(policy=mu).fit(logs) is mu
    np.testing.assert_allclose(LoggedBehaviour().fit(logs).action_probs(np.eye(6)), 1 / 3, atol=0.08)
    with pytest.raises(ConfigError, match="a policy over the log's 3 actions"):
        LoggedBehaviour(policy=UniformPolicy(2)).fit(logs)
