"""Learners by name."""

from __future__ import annotations

import numpy as np
import pytest

from shpi.errors import ConfigError, MissingExtraError
from shpi.learners import ContextualBandit, Learner, OfflineSHPI, OnlineLearner, registry
from shpi.oracles import Gbdt
from shpi.protocols import Policy
from shpi.testing.tastes import Tastes
from shpi.values import Constant

HERE = [name for name in registry.names() if registry.missing(name) is None]


@pytest.mark.parametrize("name", HERE)
def test_every_learner_can_be_made(name):
    learner = registry.make(name)
    kind = Learner if registry.entry(name).kind == "offline" else OnlineLearner
    assert isinstance(learner, kind)
    budget = registry.entry(name).budget
    assert budget is None or budget in registry.parameters(name)


def test_the_names_of_the_issue_are_there():
    wanted = {
        "shpi",
        "shpi-paper",
        "bandit",
        "bandit-vw",
        "session-rl",
        "a-mu",
        "a-pi",
        "bcq",
        "cql",
        "cb-mf",
    }
    wanted |= {"nn-ips", "spibb", "mbs", "spibb-shpi", "clone", "deep-sarsa", "online-bandit", "online-shpi"}
    assert wanted <= set(registry.names())
    assert set(registry.names("offline")) | set(registry.names("online")) == set(registry.names())
    assert all(registry.entry(name).about for name in registry.names())


def test_options_and_words():
    bandit = registry.make("bandit-dr", oracle="gbdt", seed=5)
    assert isinstance(bandit, ContextualBandit)
    assert (bandit.target, bandit.seed, type(bandit.oracle)) == ("dr", 5, Gbdt)
    shpi = registry.make("shpi", value="zero", k=3)
    assert isinstance(shpi, OfflineSHPI)
    assert shpi.value == Constant(0.0)
    pytest.importorskip("torch", reason="the paper's V is a network")
    assert registry.make("shpi-paper").form == "raw"  # type: ignore[union-attr]


def test_a_learner_of_each_kind_learns():
    world = Tastes()
    offline = registry.make("bandit", oracle="gbdt").fit(world.log(40, seed=0))  # type: ignore[arg-type]
    online = registry.make("online-bandit", users=20, rounds=2, oracle="gbdt").fit(world)  # type: ignore[arg-type]
    for policy in (offline, online):
        assert isinstance(policy, Policy)
        np.testing.assert_allclose(policy.action_probs(world.fresh(5, seed=0)[0]).sum(axis=1), 1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bandits", {}, "the name of a learner, one of shpi"),
        ("bandit", {"k": 3}, "options of 'bandit' among oracle, target, support, behaviour, seed, found k"),
        ("bandit", {"oracle": "tree"}, "oracle among ridge, gbdt, mlp, vw"),
        ("shpi", {"value": "big"}, "value among lstd"),
        ("shpi", {"iterations": "ten"}, "of the right types"),
        ("shpi", {"iterations": 0}, "iterations of at least 1"),
    ],
)
def test_bad_names_and_options(name, options, message):
    with pytest.raises(ConfigError, match=message):
        registry.make(name, **options)


def test_an_extra_that_is_absent_is_named(monkeypatch):
    monkeypatch.setattr(registry, "_PACKAGES", {"vw": "no_such_package", "neural": "torch", "gbdt": "numpy"})
    assert registry.missing("bandit-vw") == "needs the extra 'vw': pip install 'shpi[vw]'"
    assert registry.missing("bandit") is None
    with pytest.raises(MissingExtraError, match=r"pip install 'shpi\[vw\]'"):
        registry.make("bandit-vw")


def test_a_learner_that_this_version_lacks(monkeypatch):
    monkeypatch.setitem(registry._LEARNERS, "next", registry.Entry("tomorrow", "Best", "the best one"))
    assert registry.missing("next") == "not in this version of shpi"
    with pytest.raises(ConfigError, match=r"that this version of shpi has: shpi, .*found 'next'"):
        registry.make("next")
