from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import ActionError, ConfigError, DataError
from shpi.features import Standardise
from shpi.learners import NNIPS
from shpi.learners.neural import _descent
from shpi.learners.neural._descent import Decisions
from shpi.policies import Softmax
from shpi.testing import check_learner, check_policy
from tests.learners.rivals import (
    masked_world_and_log,
    one_step_shortfall,
    with_empty_candidates,
    without,
    world,
)

torch = pytest.importorskip("torch")

SMALL = NNIPS(hidden=(32,), batch=256, steps=300, learning_rate=1e-2, seed=1)


def test_it_keeps_what_every_learner_keeps() -> None:
    check_learner(replace(SMALL, steps=80), attains=0.5)


@pytest.mark.parametrize(
    "change", [{}, {"self_normalised": True}, {"greedy": False}, {"penalty": 1.0}, {"baseline": False}]
)
def test_with_full_coverage_it_finds_the_best_one_step_policy(change: dict[str, object]) -> None:
    mdp, logs = masked_world_and_log()
    assert one_step_shortfall(mdp, replace(SMALL, **change).fit(logs), logs) < 0.01  # type: ignore[arg-type]


def test_the_loss_is_the_clipped_estimate_minus_its_penalty() -> None:
    weights, rewards = torch.tensor([0.5, 2.0, 0.0, 1.5]), torch.tensor([1.0, -1.0, 3.0, 2.0])
    parts = np.array([0.5, -2.0, 0.0, 3.0])
    plain = NNIPS(penalty=2.0)._loss(torch, weights, rewards, 100)
    assert float(plain) == pytest.approx(-parts.mean() + 2.0 * parts.std() / 10.0, abs=1e-6)
    ratio = parts.sum() / 4.0
    centred = np.array([0.5, 2.0, 0.0, 1.5]) * (np.array([1.0, -1.0, 3.0, 2.0]) - ratio)
    normalised = NNIPS(penalty=2.0, self_normalised=True)._loss(torch, weights, rewards, 100)
    assert float(normalised) == pytest.approx(-ratio + 2.0 * centred.std() / 10.0, abs=1e-6)


def bandit_log(n: int, mu: np.ndarray, means: np.ndarray, seed: int = 0) -> LoggedData:
    """One context, many users with one decision each."""
    rng = np.random.default_rng(seed)
    actions = rng.choice(len(mu), size=n, p=mu)
    return LoggedData.from_arrays(
        contexts=np.ones((n, 1)),
        actions=actions,
        rewards=means[actions] + rng.normal(size=n),
        propensities=mu[actions],
        offsets=np.arange(n + 1),
        n_actions=len(mu),
    )


def test_it_corrects_for_what_the_log_preferred() -> None:
    # The log loves the action that is only second best. Without a baseline all rewards are positive.
    logs = bandit_log(6_000, np.array([0.9, 0.05, 0.05]), np.array([5.0, 6.0, 4.0]))
    for baseline in (True, False):
        policy = replace(SMALL, baseline=baseline).fit(logs)
        assert policy.action_probs(np.ones((1, 1)))[0].argmax() == 1


def test_a_clip_takes_the_reward_away_from_rare_actions() -> None:
    # Action 1 is the better one, and so rare that its weight of 50 is clipped to 2.
    logs = bandit_log(6_000, np.array([0.98, 0.02]), np.array([0.0, 1.0]))
    plain = replace(SMALL, greedy=False, baseline=False).fit(logs).action_probs(np.ones((1, 1)))
    clipped = replace(SMALL, greedy=False, baseline=False, clip=2.0).fit(logs).action_probs(np.ones((1, 1)))
    assert plain[0, 1] > 0.9 > 0.5 > clipped[0, 1]


def test_what_was_never_tried_is_never_done_unless_nothing_else_is_allowed() -> None:
    logs = bandit_log(500, np.array([0.5, 0.5, 0.0]), np.array([-5.0, -6.0, 0.0]))
    for greedy in (True, False):
        policy = replace(SMALL, greedy=greedy, steps=50).fit(logs)
        assert policy.action_probs(np.ones((1, 1)))[0, 2] == 0
        only = policy.action_probs(np.ones((1, 1)), np.array([[False, False, True]]))
        assert only.tolist() == [[0, 0, 1]]


def test_held_out_users_stop_it_where_there_is_nothing_to_learn() -> None:
    logs = bandit_log(400, np.full(4, 0.25), np.zeros(4))
    stopped = replace(SMALL, greedy=False, patience=2).fit(logs).action_probs(np.ones((1, 1)))
    unstopped = replace(SMALL, greedy=False, held_out=0.0).fit(logs).action_probs(np.ones((1, 1)))
    assert unstopped.max() > 0.7  # it believed the noise
    assert stopped.max() < unstopped.max()


def test_no_user_is_on_both_sides_of_the_split(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = world(2)
    logs = mdp.log(mdp.random_policy(0), 60, 10, 0)
    logs = replace(logs, users=np.arange(60) // 2)  # two trajectories each
    monkeypatch.setattr(_descent, "ASKED", 40)
    data = Decisions.of(torch, logs, Standardise(), 0.3, np.random.default_rng(0), "test")
    sides = [set(logs.user_codes[logs.trajectory_of_row[rows]]) for rows in (data.train, data.test.numpy())]
    assert not sides[0] & sides[1]
    assert len(sides[0]) == 21
    assert len(data.test) == 40
    alone = Decisions.of(torch, logs.select([0, 1]), Standardise(), 0.3, np.random.default_rng(0), "test")
    assert len(alone.train) == len(logs.select([0, 1]))


def test_units_of_the_reward_do_not_matter() -> None:
    logs = bandit_log(500, np.array([0.5, 0.5]), np.array([1.0, 2.0]))
    assert logs.rewards is not None
    learner = replace(SMALL, greedy=False, steps=50)
    plain, huge = learner.fit(logs), learner.fit(replace(logs, rewards=1e12 * logs.rewards + 1e12))
    np.testing.assert_allclose(*(p.action_probs(np.ones((1, 1))) for p in (plain, huge)), rtol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip": 0.0}, "positive clip"),
        ({"penalty": -1.0}, "penalty of at least 0"),
        ({"held_out": 1.0}, "held_out in"),
        ({"batch": 0}, "at least 1"),
        ({"learning_rate": -1.0}, "positive learning rate"),
    ],
)
def test_settings_out_of_range_are_errors(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NNIPS(**change)  # type: ignore[arg-type]


class TestBadInput:
    learner = replace(SMALL, steps=20)
    mdp = world(7, masked=True)
    logs = mdp.log(mdp.random_policy(0), 50, 20, 7)

    def test_no_rewards(self) -> None:
        with pytest.raises(DataError, match="a log with rewards"):
            self.learner.fit(without(self.logs, "rewards"))

    def test_no_propensities(self) -> None:
        with pytest.raises(DataError, match="a log with propensities"):
            self.learner.fit(without(self.logs, "propensities"))

    def test_nan_among_the_rewards(self) -> None:
        with pytest.raises(DataError, match="finite rewards"):
            self.learner.fit(replace(self.logs, rewards=np.full(len(self.logs), np.nan)))

    def test_a_row_without_candidates(self) -> None:
        with pytest.raises(ActionError, match="at least one allowed action"):
            self.learner.fit(with_empty_candidates(self.logs, 3))

    def test_no_reward_was_observed(self) -> None:
        with pytest.raises(DataError, match="whose reward is known"):
            self.learner.fit(replace(self.logs, reward_observed=np.zeros(len(self.logs), bool)))

    def test_one_user_one_action_constant_and_huge_rewards_give_policies(self) -> None:
        constant = replace(self.logs, rewards=np.full(len(self.logs), 3.0))
        huge = replace(self.logs, rewards=1e200 * np.asarray(self.logs.rewards))
        for logs in (self.logs.select([0]), constant, huge, bandit_log(30, np.ones(1), np.ones(1))):
            for greedy in (True, False):
                policy = replace(self.learner, greedy=greedy).fit(logs)
                check_policy(policy, np.repeat(logs.contexts[:1], 3, axis=0))
        assert isinstance(policy, Softmax)
