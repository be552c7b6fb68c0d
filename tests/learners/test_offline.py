"""Offline SHPI against exact answers: the storefront's policies, tabular improvement, and bad input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.envs.storefront import Storefront
from shpi.errors import ConfigError, DataError
from shpi.features import Identity
from shpi.learners import SPIBB, BehaviourCloning, OfflineSHPI
from shpi.oracles import Ridge
from shpi.policies import UniformPolicy, load_policy
from shpi.protocols import Policy
from shpi.testing import check_policy
from shpi.testing.tabular import random_mdp
from shpi.values import LSTD, Constant, Given

TABULAR = Ridge(features=Identity(), penalty=1e-3, shared_penalty=1e-3)  # one-hot contexts: a mean per (x, a)


@pytest.fixture(scope="module")
def shop() -> Storefront:
    return Storefront()


@pytest.fixture(scope="module")
def shop_log(shop: Storefront) -> LoggedData:
    return shop.rollout(UniformPolicy(shop.n_actions), 8000, seed=1)


@pytest.fixture(scope="module")
def learned(shop_log: LoggedData) -> dict[str, Policy]:
    return {
        "bandit": OfflineSHPI(k=1, value=Constant(0.0), tested=False).fit(shop_log),
        "session": OfflineSHPI(k="session", value=Constant(0.0), tested=False).fit(shop_log),
        "shpi": OfflineSHPI(k=3).fit(shop_log),
    }


def exact(shop: Storefront, policy: Policy) -> float:
    return shop.exact_value(policy.action_probs(shop.contexts))


def test_the_paper_s_story_is_learned_from_the_log(shop: Storefront, learned: dict[str, Policy]) -> None:
    value = {name: exact(shop, policy) for name, policy in learned.items()}
    assert value["bandit"] == pytest.approx(shop.exact_value(shop.bandit()), rel=0.05)
    assert shop.exact_value(shop.uniform()) < value["bandit"] < value["session"] < value["shpi"]
    assert value["shpi"] > shop.exact_value(shop.session_rl())
    assert value["shpi"] > 0.93 * shop.exact_value(shop.shpi(3))


def test_one_round_with_k_1_is_one_step_of_exact_policy_improvement() -> None:
    mdp = random_mdp(6, 3, seed=4, gamma=0.8)
    mu = np.full((6, 3), 1 / 3)
    logs = mdp.log(mu, 4000, 25, seed=0)
    config = OfflineSHPI(
        k=1, gamma=0.8, iterations=1, value=LSTD(features=Identity()), oracle=TABULAR, tested=False
    )
    policy = config.fit(logs)
    q = mdp.q(mu)
    best = q.argmax(axis=1)
    chosen = policy.action_probs(np.eye(6)).argmax(axis=1)
    regret = q[np.arange(6), best] - q[np.arange(6), chosen]
    assert regret.max() < 0.02 * np.ptp(q)


def test_iterations_approach_the_optimum_of_a_tabular_world() -> None:
    mdp = random_mdp(6, 3, seed=5, gamma=0.8)
    mu = np.full((6, 3), 1 / 3)
    logs = mdp.log(mu, 4000, 25, seed=0)
    config = OfflineSHPI(
        k=6,
        gamma=0.8,
        value=LSTD(features=Identity()),
        oracle=TABULAR,
        weight_clip=(0.0, 100.0),
        tested=False,
    )
    table = config.fit(logs).action_probs(np.eye(6))
    start, best = (float(mdp.initial @ mdp.value(policy)) for policy in (mu, mdp.optimal()[1]))
    assert float(mdp.initial @ mdp.value(table)) > start + 0.9 * (best - start)


def test_same_seed_same_policy_and_the_log_is_left_alone(shop: Storefront, shop_log: LoggedData) -> None:
    logs = shop_log.select(np.arange(1500))
    before = logs.fingerprint()
    first, second = OfflineSHPI(k=3, seed=3).fit(logs), OfflineSHPI(k=3, seed=3).fit(logs)
    np.testing.assert_array_equal(first.action_probs(shop.contexts), second.action_probs(shop.contexts))
    assert logs.fingerprint() == before
    assert len(first.trials) > 1
    assert [(t.words, t.lift) for t in first.trials] == [(t.words, t.lift) for t in second.trials]


def test_the_result_is_a_policy_that_saves(
    shop: Storefront, shop_log: LoggedData, learned: dict[str, Policy], tmp_path: Path
) -> None:
    policy = learned["shpi"]
    check_policy(policy.policy, shop_log.contexts[:50])  # type: ignore[attr-defined]
    policy.save(tmp_path / "policy")  # type: ignore[attr-defined]
    back = load_policy(tmp_path / "policy")
    np.testing.assert_array_equal(back.action_probs(shop.contexts), policy.action_probs(shop.contexts))
    assert "<- returned" in str(policy)


def test_candidates_are_obeyed() -> None:
    mdp = random_mdp(5, 4, seed=2, gamma=0.9)
    logs = mdp.log(np.full((5, 4), 0.25), 300, 10, seed=0)
    masks = np.ones((len(logs), 4), dtype=bool)
    masks[np.arange(len(logs)), (logs.actions + 1) % 4] = False
    logs = replace(logs, candidates=masks, final_candidates=np.ones((logs.n_trajectories, 4), dtype=bool))
    probs = OfflineSHPI(k=3, gamma=0.9, oracle=TABULAR).fit(logs).action_probs(logs.contexts, masks)
    assert (probs[~masks] == 0).all()


def test_without_exploration_the_logging_policy_is_returned() -> None:
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((4000, 2))
    actions = (contexts[:, 0] > 0).astype(int)
    logs = LoggedData.from_arrays(
        contexts=contexts, actions=actions, rewards=rng.standard_normal(4000), propensities=np.ones(4000),
        offsets=np.arange(0, 4001, 20), n_actions=3,
    )  # fmt: skip
    policy = OfflineSHPI(k=3).fit(logs)
    fresh = rng.standard_normal((2000, 2))
    agree = policy.action_probs(fresh).argmax(axis=1) == (fresh[:, 0] > 0)
    assert agree[np.abs(fresh[:, 0]) > 0.2].mean() > 0.97
    assert (policy.action_probs(fresh)[:, 2] == 0).all()  # an action that was never logged


def test_cloning_recovers_a_smooth_policy() -> None:
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((20_000, 2))
    logits = np.stack([contexts[:, 0], contexts[:, 1], np.zeros(len(contexts))], axis=1)
    mu = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    actions = (mu.cumsum(axis=1) < rng.random((len(mu), 1))).sum(axis=1)
    logs = LoggedData.from_arrays(
        contexts=contexts, actions=actions, offsets=np.arange(0, 20_001, 10), n_actions=3
    )
    clone = BehaviourCloning().fit(logs)
    check_policy(clone, contexts[:40])
    assert np.abs(clone.action_probs(contexts) - mu).mean() < 0.02


def test_huge_and_constant_rewards(shop: Storefront, shop_log: LoggedData) -> None:
    logs = shop_log.select(np.arange(600))
    assert logs.rewards is not None
    huge = OfflineSHPI(k=2, iterations=2).fit(logs.with_rewards(logs.rewards * 1e12))
    plain = OfflineSHPI(k=2, iterations=2).fit(logs)
    assert plain.chosen > 0
    assert huge.chosen == plain.chosen
    np.testing.assert_allclose(
        huge.action_probs(logs.contexts[:200]), plain.action_probs(logs.contexts[:200]), rtol=1e-4, atol=1e-9
    )
    nothing = OfflineSHPI(k=2, iterations=2).fit(logs.with_rewards(np.zeros(len(logs))))
    assert nothing.chosen == 0
    assert not nothing.proven
    np.testing.assert_allclose(nothing.action_probs(logs.contexts[:50]), 0.2, atol=0.05)  # mu
    assert logs.terminated.all()  # so that equal rewards for all decisions are a reward for staying
    staying = OfflineSHPI(k=2, iterations=2).fit(logs.with_rewards(np.ones(len(logs))))
    assert staying.proven
    visits = shop.rollout(staying, 500, seed=2), shop.rollout(UniformPolicy(shop.n_actions), 500, seed=2)
    assert len(visits[0]) > 1.3 * len(visits[1])


def test_identical_contexts_and_a_k_beyond_every_trajectory() -> None:
    rng = np.random.default_rng(1)
    actions = rng.integers(0, 2, 2000)
    logs = LoggedData.from_arrays(
        contexts=np.ones((2000, 2)), actions=actions, rewards=actions + 0.1 * rng.standard_normal(2000),
        propensities=np.full(2000, 0.5), offsets=np.arange(0, 2001, 4), n_actions=2,
    )  # fmt: skip
    for tested in (False, True):
        policy = OfflineSHPI(k=500, value=Constant(0.0), tested=tested).fit(logs)
        assert policy.action_probs(np.ones((1, 2)))[0, 1] == pytest.approx(1.0, abs=1e-3)


def test_what_is_missing_is_named(shop_log: LoggedData) -> None:
    logs = shop_log.select(np.arange(50))
    with pytest.raises(DataError, match=r"a log with propensities.*with_estimated_propensities"):
        OfflineSHPI().fit(replace(logs, propensities=None, propensity_mode="absent"))
    with pytest.raises(DataError, match=r"a log with rewards.*backshift=True"):
        OfflineSHPI().fit(replace(logs, rewards=None))
    with pytest.raises(DataError, match="nan"):
        OfflineSHPI(value=Given(lambda x: np.full(len(x), np.nan))).fit(logs)
    backshifted = OfflineSHPI(value=Given(lambda x: x[:, 0].astype(float)), backshift=True, iterations=1)
    assert backshifted.fit(replace(logs, rewards=None)).trials
    assert replace(backshifted, tested=False).fit(replace(logs, rewards=None)).history


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iterations": 0}, "iterations of at least 1"),
        ({"proximal": 1.0}, "tested=False where"),
        ({"start": "random"}, "tested=False where"),
        ({"start": UniformPolicy(3)}, "tested=False where"),
        ({"constraint": SPIBB()}, "tested=False where"),
        ({"proximal": -1.0, "tested": False}, "proximal of at least 0"),
        ({"reach": -1.0}, "reach of at least 0"),
        ({"start": "mu"}, "start 'behaviour', 'random', 'uniform' or a policy"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_nonsense_settings(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OfflineSHPI(**change)  # type: ignore[arg-type]


def test_the_paper_s_configuration_runs(shop_log: LoggedData) -> None:
    pytest.importorskip("torch", reason="the paper's V is a network")
    from shpi.values import BellmanResidual

    config = OfflineSHPI.paper(iterations=2, value=BellmanResidual(steps=50))
    assert (config.k, config.form, config.start, config.reach) == (5, "raw", "random", None)
    assert not config.tested
    policy = config.fit(shop_log.select(np.arange(300)))
    assert policy.chosen == len(policy.history)


def test_rewards_whose_squares_are_too_large_for_single_precision_change_nothing() -> None:
    random = np.random.default_rng(0)
    contexts, actions = random.standard_normal((600, 2)), random.integers(0, 3, 600)
    rewards = contexts[:, 0] * (actions - 1) + random.standard_normal(600)
    policies = []
    for unit in (1.0, 2.0**90):
        log = LoggedData.from_arrays(
            contexts=contexts.astype(np.float32),
            actions=actions,
            rewards=unit * rewards,
            offsets=np.arange(0, 601, 6),
            propensities=np.full(600, 1 / 3),
            n_actions=3,
            terminated=np.ones(100, dtype=bool),
        )
        policies.append(OfflineSHPI(gamma=0.9, progress=False).fit(log))
    assert policies[0].proven
    np.testing.assert_allclose(*(policy.action_probs(contexts) for policy in policies), atol=1e-4)
