"""The offline bandit against one-step optima, closed forms, and bad input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.features import Cells, Identity
from shpi.learners import ContextualBandit
from shpi.learners.bandit import SumScorer
from shpi.oracles import Gbdt, Ridge
from shpi.policies import LinearScorer, UniformPolicy
from shpi.testing import check_learner
from shpi.testing.tabular import TabularMDP, random_mdp
from shpi.testing.tastes import Tastes

TARGETS = ("direct", "mtr", "dr")
TABLE = Ridge(features=Cells(), penalty=1e-6, shared_penalty=1e-6)


def world(seed: int = 3, **options: object) -> tuple[TabularMDP, np.ndarray, LoggedData]:
    mdp = random_mdp(7, 4, seed=seed, gamma=0.9, noise=0.3, **options)  # type: ignore[arg-type]
    mu = 0.5 * mdp.random_policy(seed + 1) + 0.125
    mu = mu / mu.sum(axis=1, keepdims=True)
    return mdp, mu, mdp.log(mu, 1500, horizon=10, seed=seed)


def share_of_best(mdp: TabularMDP, mu: np.ndarray, table: np.ndarray) -> float:
    """From mu (0) to the best one-step policy (1), at the states that mu visits."""
    visits = mdp.occupancy(mu)
    here, base, best = (
        float(visits @ (pi * mdp.reward).sum(axis=1))
        for pi in (table, mu, np.eye(4)[mdp.reward.argmax(axis=1)])
    )
    return (here - base) / (best - base)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", [3, 5])
def test_on_a_finite_world_it_is_within_one_percent_of_the_best_one_step_policy(target, seed):
    mdp, mu, logs = world(seed)
    policy = ContextualBandit(target=target, support=None).fit(logs)
    assert share_of_best(mdp, mu, policy.action_probs(np.eye(7))) > 0.99


def test_so_are_boosted_trees():
    mdp, mu, logs = world()
    policy = ContextualBandit.boosted(support=None).fit(logs)
    assert share_of_best(mdp, mu, policy.action_probs(np.eye(7))) > 0.99


def test_it_looks_at_the_immediate_reward_alone():
    mdp, mu, logs = world()
    chosen = ContextualBandit(support=None).fit(logs).action_probs(np.eye(7)).argmax(axis=1)
    assert (mdp.q(mu).argmax(axis=1) != chosen).any()  # the long term would choose otherwise
    regret = mdp.reward.max(axis=1) - mdp.reward[np.arange(7), chosen]
    assert regret.max() < 0.05


@pytest.mark.parametrize("target", TARGETS)
def test_it_passes_the_suite(target):
    check_learner(ContextualBandit(target=target, oracle=Ridge.exact()), attains=0.9)


def test_the_default_and_the_trees_pass_the_suite():
    check_learner(ContextualBandit(), users=100, attains=0.8, hard_logs=False)
    check_learner(ContextualBandit(oracle=Gbdt(trees=20), target="mtr", support=None), attains=0.7)


def test_vw_passes_the_suite():
    pytest.importorskip("vowpalwabbit")
    check_learner(ContextualBandit.paper(), attains=0.8)


# ---------------------------------------------------------------------- the three targets


def skewed(n: int = 40_000, *, exact_propensities: bool = True) -> LoggedData:
    """An action that is taken where x is large, and whose reward is a step: a line fitted there is wrong."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, n)
    p1 = 0.05 + 0.9 * (x > 0)
    action = (rng.random(n) < p1).astype(int)
    taken = np.where(action == 1, p1, 1 - p1)
    rewards = np.where(action == 1, 1.0 - 2.0 * (x < 0), 0.0) + 0.1 * rng.standard_normal(n)
    return LoggedData.from_arrays(
        contexts=x[:, None],
        actions=action,
        offsets=np.arange(n + 1),
        rewards=rewards,
        propensities=taken if exact_propensities else np.full(n, 0.5),
        terminated=np.ones(n, dtype=bool),
        n_actions=2,
    )


def slopes(scorer: object, x: np.ndarray) -> np.ndarray:
    scores = scorer.scores(x[:, None])  # type: ignore[attr-defined]
    return np.array([scores[1, 1] - scores[0, 1]]) / (x[1] - x[0])


def test_mtr_is_least_squares_with_inverse_propensities():
    logs = skewed()
    policy = ContextualBandit(target="mtr", oracle=Ridge.exact(), support=None).fit(logs)
    assert logs.propensities is not None
    for action in (0, 1):
        rows = logs.actions == action
        root = np.sqrt(1 / logs.propensities[rows])
        design = np.stack([np.ones(rows.sum()), logs.contexts[rows, 0]], axis=1) * root[:, None]
        best, *_ = np.linalg.lstsq(design, logs.rewards[rows] * root, rcond=None)
        scores = policy.scorer.scores(np.array([[0.0], [1.0]]))[:, action]
        np.testing.assert_allclose(scores, [best[0], best.sum()], atol=1e-3)


def test_weights_remove_what_the_choice_of_rows_does_to_a_line():
    # The best line over uniform x for the step function sign(x) has slope 1.5.
    x = np.array([-1.0, 1.0])
    slope_by_target = {
        target: float(
            slopes(
                ContextualBandit(target=target, oracle=Ridge.exact(), support=None).fit(skewed()).scorer, x
            )[0]
        )
        for target in TARGETS
    }
    assert slope_by_target["mtr"] == pytest.approx(1.5, abs=0.05)
    assert slope_by_target["dr"] == pytest.approx(1.5, abs=0.05)
    assert abs(slope_by_target["direct"] - 1.5) > 0.3


def test_dr_survives_wrong_propensities_if_the_regression_is_right():
    logs = skewed(exact_propensities=False)
    step = Ridge(features=Cells(), penalty=1e-6, shared_penalty=1e-6)
    coarse = replace(logs, contexts=np.sign(logs.contexts), final_contexts=np.sign(logs.final_contexts))
    scorer = ContextualBandit(target="dr", oracle=step, support=None).fit(coarse).scorer
    np.testing.assert_allclose(scorer.scores(np.array([[-1.0], [1.0]]))[:, 1], [-1, 1], atol=0.02)


def test_the_target_decides_the_weights_whatever_the_oracle_says():
    logs = skewed(2000)
    unweighted, weighted = (
        ContextualBandit(oracle=Ridge.exact(weights=w), support=None).fit(logs).scorer
        for w in ("none", "mtr")
    )
    np.testing.assert_array_equal(unweighted.scores(logs.contexts), weighted.scores(logs.contexts))


def test_censored_rewards_are_not_looked_at():
    _, _, logs = world()
    observed = np.arange(len(logs)) % 4 != 0
    absurd = np.where(observed, logs.rewards, np.nan)
    of_nan = ContextualBandit(oracle=TABLE).fit(replace(logs, rewards=absurd, reward_observed=observed))
    of_huge = ContextualBandit(oracle=TABLE).fit(
        replace(logs, rewards=np.where(observed, logs.rewards, -1e9), reward_observed=observed)
    )
    np.testing.assert_array_equal(of_nan.action_probs(np.eye(7)), of_huge.action_probs(np.eye(7)))


# ---------------------------------------------------------------------- support


def test_an_action_that_the_log_never_took_is_not_taken():
    rng = np.random.default_rng(1)
    logs = LoggedData.from_arrays(
        contexts=rng.normal(size=(300, 2)),
        actions=rng.integers(0, 2, 300),
        offsets=np.arange(301),
        rewards=-1.0 - rng.random(300),
        propensities=np.full(300, 0.5),
        n_actions=4,
    )
    for support in (None, 0.1):
        policy = ContextualBandit(oracle=Ridge(features=Identity()), support=support).fit(logs)
        assert not policy.action_probs(logs.contexts)[:, 2:].any()
        only_new = np.zeros((5, 4), dtype=bool)
        only_new[:, 2:] = True
        np.testing.assert_allclose(policy.action_probs(logs.contexts[:5], only_new)[:, 2:], 0.5)


def test_support_keeps_to_what_mu_does():
    mdp, _, _ = world()
    best = mdp.reward.argmax(axis=1)
    mu = np.full((7, 4), 0.33)
    mu[np.arange(7), best] = 0.01
    logs = mdp.log(mu, 2000, horizon=10, seed=0)
    wide, narrow = (
        ContextualBandit(support=support).fit(logs).action_probs(np.eye(7)) for support in (None, 0.2)
    )
    assert (wide.argmax(axis=1) == best).mean() > 0.8
    assert (narrow.argmax(axis=1) != best).all()
    told = ContextualBandit(support=0.2, behaviour=UniformPolicy(4)).fit(logs).action_probs(np.eye(7))
    np.testing.assert_array_equal(told, wide)  # a mu that is known need not be recovered


# ---------------------------------------------------------------------- bad input


def test_no_rewards():
    logs = replace(Tastes().log(30, seed=0), rewards=None)
    with pytest.raises(DataError, match="a log with rewards, found none"):
        ContextualBandit().fit(logs)


@pytest.mark.parametrize("target", ["mtr", "dr"])
def test_no_propensities(target):
    logs = replace(Tastes().log(30, seed=0), propensities=None, propensity_mode="absent", behaviour=None)
    with pytest.raises(DataError, match="with_estimated_propensities"):
        ContextualBandit(target=target).fit(logs)
    assert ContextualBandit(target="direct", oracle=Ridge.exact()).fit(logs).n_actions == 4


def test_all_rewards_censored():
    logs = Tastes().log(30, seed=0)
    with pytest.raises(DataError, match="at least one decision whose reward is known"):
        ContextualBandit().fit(replace(logs, reward_observed=np.zeros(len(logs), dtype=bool)))


def test_bad_settings():
    with pytest.raises(ConfigError, match="one of direct, mtr, dr"):
        ContextualBandit(target="ips")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"support in \[0, 1\]"):
        ContextualBandit(support=2.0)
    maps = Identity().fit(np.zeros((1, 1)))
    two, three = (LinearScorer(np.zeros((count, 2)), maps) for count in (2, 3))
    with pytest.raises(ConfigError, match="two scorers over 2 actions"):
        SumScorer(two, three)
