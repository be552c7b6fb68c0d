from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.envs.base import check_actions, check_reset, check_running
from shpi.envs.rollout import ACTION_LABEL, mean_return, rollout
from shpi.envs.streams import Streams
from shpi.errors import ActionError, ConfigError, EpisodeError
from shpi.policies import ConstantPolicy, TabularPolicy, UniformPolicy
from shpi.protocols import Step


@dataclass
class Countdown:
    """User u leaves after (u mod 7) + 1 decisions; sessions are pairs; action t mod 3 is forbidden at t."""

    masked: bool = True
    name: str = "countdown"
    n_actions: int = 3
    context_names: tuple[str, ...] = ("lifetime", "t")
    horizon: int = 5
    users: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    t: int = 0
    ended: np.ndarray | None = None
    earned: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def reset(self, n: int, seed: int, *, first: int = 0) -> np.ndarray:
        self.users, self.t = check_reset(n, seed, first), 0
        self.ended, self.earned = np.zeros(n, bool), np.zeros(n)
        return self._contexts()

    def _contexts(self) -> np.ndarray:
        return np.stack([self.users % 7 + 1, np.full(len(self.users), self.t)], axis=1).astype(float)

    def candidates(self) -> np.ndarray | None:
        if not self.masked:
            return None
        assert self.ended is not None
        mask = np.ones((len(self.users), 3), bool)
        mask[:, self.t % 3] = False
        mask[self.ended] = False  # nothing can be recommended to who is gone
        return mask

    def step(self, actions: Any) -> Step:
        check_running(self.ended, self.t, self.horizon)
        assert self.ended is not None
        before = self.ended
        chosen = check_actions(actions, len(self.users), 3, self.candidates(), ended=before)
        self.t += 1
        rewards = np.where(before, 0.0, 10.0 * self.t + chosen)
        self.earned = self.earned + rewards
        self.ended = before | (self.t >= self.users % 7 + 1)
        info = {"session_end": np.full(len(self.users), self.t % 2 == 0), "click": chosen == 1, "note": "x"}
        return Step(self._contexts(), rewards, self.ended, info)

    def score(self) -> np.ndarray:
        return -self.earned


def same(a: LoggedData, b: LoggedData) -> bool:
    names = ["contexts", "actions", "rewards", "propensities", "offsets", "session_offsets", "users"]
    names += ["terminated", "final_contexts", "candidates", "final_candidates"]
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names) and all(
        np.array_equal(a.metrics[name], b.metrics[name]) for name in a.metrics
    )


def test_users_leave_when_they_leave_and_the_others_are_truncated() -> None:
    logs = rollout(Countdown(), UniformPolicy(3), 14, seed=0)
    lifetimes = np.arange(14) % 7 + 1
    assert np.diff(logs.offsets).tolist() == np.minimum(lifetimes, 5).tolist()
    assert logs.terminated.tolist() == (lifetimes <= 5).tolist()
    assert logs.final_observed.all()
    assert logs.final_contexts[:, 1].tolist() == np.minimum(lifetimes, 5).tolist()
    assert logs.contexts[:, 1].tolist() == logs.steps.tolist()
    assert logs.users.tolist() == list(range(14))
    assert logs.schema.dimensions == ("lifetime", "t")


def test_rewards_sessions_and_metrics_belong_to_their_decision() -> None:
    logs = rollout(Countdown(), UniformPolicy(3), 14, seed=0)
    assert logs.rewards is not None
    assert np.array_equal(logs.rewards, 10.0 * (logs.steps + 1) + logs.actions)
    assert np.array_equal(logs.metrics["click"], logs.actions == 1)
    assert set(logs.metrics) == {"click"}
    starts = (logs.steps % 2 == 0).nonzero()[0]
    assert logs.session_offsets.tolist() == [*starts, len(logs)]


def test_masks_are_obeyed_and_logged() -> None:
    logs = rollout(Countdown(), UniformPolicy(3), 700, seed=0, keep_behaviour=True)
    assert logs.candidates is not None
    assert logs.behaviour is not None
    assert logs.final_candidates is not None
    assert np.array_equal(~logs.candidates, np.eye(3, dtype=bool)[logs.steps % 3])
    assert (logs.actions != logs.steps % 3).all()
    assert np.array_equal(logs.propensities, np.full(len(logs), 0.5))
    assert np.array_equal(logs.behaviour, logs.candidates / 2)
    assert (~logs.final_candidates[logs.terminated]).all()


@pytest.mark.parametrize("batch", [1, 3, 10, 50, 64])
def test_the_log_does_not_depend_on_the_batch(batch: int) -> None:
    policy = TabularPolicy(np.random.default_rng(0).dirichlet(np.ones(3), 8))
    whole = rollout(Countdown(masked=False), policy, 50, seed=4, first=3)
    assert same(whole, rollout(Countdown(masked=False), policy, 50, seed=4, first=3, batch=batch))
    parts = [rollout(Countdown(masked=False), policy, 10, seed=4, first=3 + low) for low in range(0, 50, 10)]
    assert np.array_equal(whole.actions, np.concatenate([log.actions for log in parts]))
    assert not np.array_equal(
        whole.actions, rollout(Countdown(masked=False), policy, 50, seed=5, first=3).actions
    )


def test_actions_come_from_the_users_stream_by_inverse_cdf() -> None:
    probs = np.array([0.2, 0.0, 0.8])
    logs = rollout(Countdown(masked=False), ConstantPolicy(probs), 2_000, seed=1)
    users = logs.users[logs.trajectory_of_row]
    u = np.array([Streams(1, np.array([user])).uniform(ACTION_LABEL, int(t))[0]
                  for user, t in zip(users[:200], logs.steps[:200], strict=True)])  # fmt: skip
    assert logs.actions[:200].tolist() == np.where(u < 0.2, 0, 2).tolist()
    assert np.array_equal(logs.propensities, probs[logs.actions])
    share = (logs.actions == 0).mean()
    assert abs(share - 0.2) < 4 * np.sqrt(0.16 / len(logs))


def test_asking_the_policy_again_gives_the_logged_propensities() -> None:
    class Steep:
        n_actions = 3

        def action_probs(self, contexts: np.ndarray, candidates: np.ndarray | None = None) -> np.ndarray:
            w = np.exp(np.sin(1e6 * contexts[:, :1].astype(np.float64) / 3) * np.arange(3))
            return np.asarray(w / w.sum(axis=1, keepdims=True))

    class Fine(Countdown):
        def _contexts(self) -> np.ndarray:
            return super()._contexts() + 1 / 3  # not a float32

    logs = rollout(Fine(masked=False), Steep(), 30, seed=0)
    again = Steep().action_probs(logs.contexts)[np.arange(len(logs)), logs.actions]
    assert np.array_equal(logs.propensities, again)


@pytest.mark.parametrize("batch", [None, 4])
def test_mean_return_sees_the_same_users_as_the_log(batch: int | None) -> None:
    logs = rollout(Countdown(), UniformPolicy(3), 20, seed=2, first=5)
    result = mean_return(Countdown(), UniformPolicy(3), 20, seed=2, first=5, batch=batch)
    assert logs.rewards is not None
    assert np.allclose(result.returns, np.add.reduceat(logs.rewards, logs.offsets[:-1]))
    assert result.scores is not None
    assert np.array_equal(result.scores, -result.returns)
    assert result.mean == pytest.approx(-result.returns.mean())


def test_a_shorter_horizon_truncates() -> None:
    logs = rollout(Countdown(), UniformPolicy(3), 7, seed=0, horizon=2)
    assert np.diff(logs.offsets).max() == 2
    assert logs.terminated.sum() == 2


def test_bad_arguments_of_a_rollout() -> None:
    world, policy = Countdown(), UniformPolicy(3)
    with pytest.raises(ConfigError, match="n to be a whole number >= 1, found 0"):
        rollout(world, policy, 0, seed=0)
    with pytest.raises(ConfigError, match=r"n to be a whole number >= 1, found 2\.5"):
        rollout(world, policy, 2.5, seed=0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="seed"):
        rollout(world, policy, 2, seed=-1)
    with pytest.raises(ConfigError, match="first to be a whole number >= 0"):
        rollout(world, policy, 2, seed=0, first=-1)
    with pytest.raises(ConfigError, match="horizon of at most 5"):
        rollout(world, policy, 2, seed=0, horizon=6)
    with pytest.raises(ConfigError, match="horizon to be a whole number >= 1"):
        rollout(world, policy, 2, seed=0, horizon=0)
    with pytest.raises(ConfigError, match="batch to be a whole number >= 1"):
        rollout(world, policy, 2, seed=0, batch=0)
    with pytest.raises(ConfigError, match="a policy over the 3 actions of 'countdown', found one over 4"):
        rollout(world, UniformPolicy(4), 2, seed=0)


def test_bad_actions_are_named_by_row() -> None:
    mask = np.array([[True, True, False], [True, False, True]])
    with pytest.raises(ActionError, match=r"shape \(2,\), found shape \(3,\)"):
        check_actions(np.zeros(3, int), 2, 3)
    with pytest.raises(ActionError, match="integer actions, found dtype float64"):
        check_actions(np.zeros(2), 2, 3)  # type: ignore[arg-type]
    with pytest.raises(ActionError, match="integer actions, found dtype bool"):
        check_actions(np.zeros(2, bool), 2, 3)  # type: ignore[arg-type]
    with pytest.raises(ActionError, match=r"actions in 0..2, found 3 \(row 1\)"):
        check_actions(np.array([0, 3]), 2, 3)
    with pytest.raises(ActionError, match=r"actions in 0..2, found -1 \(row 0\)"):
        check_actions(np.array([-1, 2]), 2, 3)
    with pytest.raises(ActionError, match=r"among the candidates.*row 1"):
        check_actions(np.array([0, 1]), 2, 3, mask)


def test_the_action_of_an_ended_user_is_ignored() -> None:
    mask = np.array([[True, True, False], [False, False, False]])
    ended = np.array([False, True])
    chosen = check_actions(np.array([1, 77], dtype=np.int32), 2, 3, mask, ended=ended)
    assert chosen.tolist() == [1, 0]
    assert chosen.dtype == np.int64


def test_stepping_out_of_order() -> None:
    world = Countdown(masked=False)
    with pytest.raises(EpisodeError, match="reset before the first step"):
        world.step(np.zeros(1, int))
    world.reset(2, seed=0)
    world.step(np.zeros(2, int))  # user 0 leaves, user 1 stays
    step = world.step(np.array([99, 0]))
    assert step.rewards.tolist() == [0.0, 20.0]
    assert step.ended.all()
    with pytest.raises(EpisodeError, match=r"all 2 have \(after 2 decisions"):
        world.step(np.zeros(2, int))
    world.reset(1, seed=0, first=6)
    for _ in range(5):
        world.step(np.zeros(1, int))
    with pytest.raises(EpisodeError, match="at most 5 decisions"):
        world.step(np.zeros(1, int))


def test_a_policy_of_the_wrong_shape_is_named() -> None:
    class Wrong:
        n_actions = 3

        def action_probs(self, contexts: np.ndarray, candidates: np.ndarray | None = None) -> np.ndarray:
            return np.ones((len(contexts), 2))

    with pytest.raises(ConfigError, match=r"Wrong\.action_probs"):
        rollout(Countdown(), Wrong(), 2, seed=0)
