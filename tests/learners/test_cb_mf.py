from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.envs import RecoGym, mean_return
from shpi.errors import ActionError, ConfigError, DataError
from shpi.learners import CBMF, NNIPS, Learner
from shpi.policies import Greedy, MlpScorer, UniformPolicy
from shpi.testing import check_learner, check_policy
from shpi.testing.tastes import Tastes, attained
from tests.learners.rivals import (
    masked_world_and_log,
    one_step_shortfall,
    with_empty_candidates,
    without,
    world,
)

torch = pytest.importorskip("torch")

SMALL = CBMF(hidden=(16,), batch=256, steps=300, learning_rate=1e-2, seed=1)


def test_it_keeps_what_every_learner_keeps() -> None:
    check_learner(replace(SMALL, steps=100), attains=0.5)


@pytest.mark.parametrize("change", [{}, {"hidden": ()}])
def test_with_full_coverage_it_finds_the_best_one_step_policy(change: dict[str, object]) -> None:
    mdp, logs = masked_world_and_log()
    assert one_step_shortfall(mdp, replace(SMALL, **change).fit(logs), logs) < 0.01  # type: ignore[arg-type]


def low_rank_log(n: int, rank: int, seed: int) -> tuple[LoggedData, np.ndarray]:
    """E[r | x, a] = 50 + 3 c_a + 20 x'U V_a with U, V of the given rank; real-valued rewards."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(5, rank)) @ rng.normal(size=(rank, 8))
    popularity = rng.normal(size=8)
    x, actions = rng.normal(size=(n, 5)), rng.integers(8, size=n)
    means = 50 + 3 * popularity + 20 * x @ matrix
    logs = LoggedData.from_arrays(
        contexts=x,
        actions=actions,
        rewards=means[np.arange(n), actions] + rng.normal(size=n),
        offsets=np.arange(n + 1),
        n_actions=8,
    )
    return logs, means


def test_it_recovers_a_factorisation_in_the_unit_of_the_rewards() -> None:
    logs, means = low_rank_log(4_000, 2, 0)
    policy = replace(SMALL, hidden=(), rank=2, decay=0.0, steps=800).fit(logs)
    assert isinstance(policy, Greedy)
    assert isinstance(policy.scorer, MlpScorer)
    error = policy.scorer.scores(logs.contexts) - means
    assert np.sqrt((error**2).mean()) < 0.05 * means.std()
    centred = policy.scorer.weights[-1] - policy.scorer.weights[-1].mean(axis=1, keepdims=True)
    singular = np.linalg.svd(centred, compute_uv=False)
    assert singular[2] < 1e-4 * singular[0]


def test_a_rank_that_is_too_low_cannot_tell_it_all() -> None:
    logs, means = low_rank_log(4_000, 3, 1)
    errors = [
        (
            (replace(SMALL, hidden=(), rank=rank, decay=0.0).fit(logs).scorer.scores(logs.contexts) - means)
            ** 2
        )
        for rank in (1, 3)
    ]
    assert errors[0].mean() > 5 * errors[1].mean()


def test_the_paper_s_alternation_learns_in_a_simulator() -> None:
    learner = replace(SMALL, steps=150, held_out=0.1)
    policy = learner.fit_online(Tastes(masked=True), users=100, rounds=2)
    again = learner.fit_online(Tastes(masked=True), users=100, rounds=2)
    contexts, masks = Tastes(masked=True).fresh(200, seed=9)
    assert attained(policy, contexts, masks) > 0.7
    np.testing.assert_array_equal(policy.action_probs(contexts), again.action_probs(contexts))


@pytest.mark.parametrize(
    "learner", [cls(steps=300, batch=512, learning_rate=3e-3, seed=0) for cls in (CBMF, NNIPS)]
)
def test_clicks_of_recogym_rise_by_a_tenth_at_least(learner: Learner) -> None:
    shop = RecoGym(n_products=10, reward="click", horizon=100)
    policy = learner.fit(shop.rollout(UniformPolicy(10), 500, seed=0))
    clicks = [mean_return(shop, p, 400, seed=1).returns.mean() for p in (UniformPolicy(10), policy)]
    assert clicks[1] > 1.1 * clicks[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 0}, "rank of at least 1"),
        ({"decay": -1.0}, "decay of at least 0"),
        ({"patience": 0}, "least 1"),
    ],
)
def test_settings_out_of_range_are_errors(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CBMF(**change)  # type: ignore[arg-type]


def test_no_rounds_are_an_error() -> None:
    with pytest.raises(ConfigError, match="rounds of at least 1"):
        SMALL.fit_online(Tastes(), users=10, rounds=0)


class TestBadInput:
    learner = replace(SMALL, steps=20)
    mdp = world(7, masked=True)
    logs = mdp.log(mdp.random_policy(0), 50, 20, 7)

    def test_no_rewards(self) -> None:
        with pytest.raises(DataError, match="a log with rewards"):
            self.learner.fit(without(self.logs, "rewards"))

    def test_no_propensities_are_needed(self) -> None:
        both = [self.learner.fit(logs) for logs in (self.logs, without(self.logs, "propensities"))]
        np.testing.assert_array_equal(*(p.action_probs(self.logs.contexts) for p in both))

    def test_nan_among_the_rewards(self) -> None:
        with pytest.raises(DataError, match="finite rewards"):
            self.learner.fit(replace(self.logs, rewards=np.full(len(self.logs), np.nan)))

    def test_a_row_without_candidates(self) -> None:
        with pytest.raises(ActionError, match="at least one allowed action"):
            self.learner.fit(with_empty_candidates(self.logs, 3))

    def test_one_user_constant_and_huge_rewards_give_policies(self) -> None:
        constant = replace(self.logs, rewards=np.full(len(self.logs), 3.0))
        huge = replace(self.logs, rewards=1e200 * np.asarray(self.logs.rewards))
        for logs in (self.logs.select([0]), constant, huge):
            check_policy(self.learner.fit(logs), logs.contexts[:5].repeat(2, axis=0))
