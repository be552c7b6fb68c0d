from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi._torch.perceptron import perceptrons
from shpi.data.logged import LoggedData
from shpi.errors import ActionError, ConfigError, DataError
from shpi.features import IdentityMap
from shpi.learners import DiscreteBCQ
from shpi.learners.neural._replay import Batch, Replay
from shpi.learners.neural.bcq import BatchConstrained
from shpi.policies import LinearScorer
from shpi.testing import check_learner, check_policy
from tests.learners.rivals import covering_log, shortfall, table, with_empty_candidates, without, world

torch = pytest.importorskip("torch")

SMALL = DiscreteBCQ(gamma=0.9, hidden=(32,), learning_rate=3e-3, batch=64, steps=800, polyak=0.02, seed=1)


def test_it_keeps_what_every_learner_keeps() -> None:
    check_learner(replace(SMALL, gamma=0.3, steps=120), attains=0.5)


@pytest.mark.parametrize(
    ("seed", "options"), [(0, {}), (1, {"n_terminal": 1, "masked": True}), (2, {"masked": True})]
)
def test_with_full_coverage_it_finds_the_optimum(seed: int, options: dict[str, object]) -> None:
    mdp = world(seed, **options)
    assert shortfall(mdp, SMALL.fit(covering_log(mdp, 2_000, seed))) < 0.01


def test_hard_copies_and_the_penalty_of_another_library_find_it_too() -> None:
    mdp = world(0)
    learner = replace(SMALL, copy_every=20, penalty=0.5)
    assert shortfall(mdp, learner.fit(covering_log(mdp, 2_000, 0))) < 0.01


def random_batch(rng: np.random.Generator, n: int = 40, d: int = 3, a: int = 5) -> Batch:
    forbidden = rng.random((2, n, a)) < 0.3
    actions = rng.integers(a, size=n)
    forbidden[0, np.arange(n), actions] = False
    forbidden[1, :, 0] = False
    return Batch(
        torch.from_numpy(rng.normal(size=(n, d)).astype(np.float32)),
        torch.from_numpy(actions)[:, None],
        torch.from_numpy(rng.normal(scale=2, size=n).astype(np.float32)),
        torch.from_numpy(rng.choice([0.0, 0.9], size=n).astype(np.float32)),
        torch.from_numpy(rng.normal(size=(n, d)).astype(np.float32)),
        *(torch.from_numpy(mask) for mask in forbidden),
    )


@pytest.mark.parametrize("threshold", [0.0, 0.8, 1.0])
def test_the_gradient_by_hand_is_that_of_the_printed_loss(threshold: float) -> None:
    rng = np.random.default_rng(0)
    batch, learner = random_batch(rng), DiscreteBCQ(threshold=threshold, penalty=0.1)
    values, (q, imitation) = perceptrons(torch, (3, 16, 8, 5), 2, rng)
    values.mul_(3.0)  # away from the small start, so that errors beyond 1 occur
    target = q.copy()
    target.values.mul_(0.5)
    with torch.no_grad():
        learner._write_gradient(q, imitation, batch, target)
    by_hand = values.grad.clone()

    values.grad = None
    free = values.detach().clone().requires_grad_()
    nets = [type(q)(torch, q.sizes, weights) for weights in free.chunk(2)]

    def forward(net: object, x: object) -> object:
        h = x
        for i in (0, 2):
            h = torch.relu(h @ net.layers[i] + net.layers[i + 1])
        return h @ net.layers[4] + net.layers[5]

    with torch.no_grad():
        g = forward(nets[1], batch.following).masked_fill(batch.forbidden_next, -torch.inf).softmax(1)
        eligible = (g / g.max(1, keepdim=True).values >= threshold) & ~batch.forbidden_next
        scores = forward(nets[0], batch.following).masked_fill(~eligible, -torch.inf)
        best = scores.argmax(1, keepdim=True)
        y = batch.rewards + batch.discounts * forward(target, batch.following).gather(1, best)[:, 0]
    i = forward(nets[1], batch.contexts)
    log_g = i.masked_fill(batch.forbidden, -torch.inf).log_softmax(1).gather(1, batch.actions)
    taken = forward(nets[0], batch.contexts).gather(1, batch.actions)[:, 0]
    assert 0.1 < float(((taken - y).abs() > 1).float().mean()) < 0.9
    loss = torch.nn.functional.smooth_l1_loss(taken, y) - log_g.mean() + 0.1 * (i**2).mean()
    loss.backward()
    torch.testing.assert_close(by_hand, free.grad, rtol=1e-4, atol=1e-6)


def chain(final_observed: list[bool], terminated: list[bool], rewards: list[float]) -> LoggedData:
    """Three kinds of users, each in a context of its own: 40 of each with two, two and three decisions.

    The third kind is longer, so that nobody is cut where the first kind leaves, see `shpi.data._log.cut`.
    """
    kinds = np.repeat(np.arange(3), 40)
    lengths = np.array([2, 2, 3])[kinds]
    rows, offsets = np.repeat(kinds, lengths), np.append(0, np.cumsum(lengths))
    last = np.isin(np.arange(len(rows)), offsets[1:] - 1)
    eye = np.eye(3, dtype=np.float32)
    return LoggedData.from_arrays(
        contexts=eye[rows],
        actions=np.zeros(len(rows), dtype=np.int64),
        rewards=np.where(last, np.array(rewards)[rows], 1.0),
        offsets=offsets,
        session_offsets=np.arange(len(rows) + 1),
        n_actions=1,
        terminated=np.array(terminated)[kinds],
        final_contexts=eye[kinds],
        final_observed=np.array(final_observed)[kinds],
    )


@pytest.mark.parametrize("standardise", [True, False])
def test_the_three_endings_have_the_values_of_their_equations(standardise: bool) -> None:
    # Kind 0 leaves after two decisions, kind 1 is cut and its last context was seen, kind 2 is cut unseen
    # with a reward that must not be looked at. Sessions end after every decision, and do not matter.
    logs = chain([False, True, False], [True, False, False], [1.0, 1.0, -1_000.0])
    learner = replace(SMALL, gamma=0.8, standardise=standardise)
    q = learner.fit(logs).q.scores(np.eye(3))[:, 0]
    # Kind 0 is at its end in half of its decisions: Q = 1 + 0.8 / 2 Q. The others go on for ever.
    np.testing.assert_allclose(q, [1 / 0.6, 5.0, 5.0], rtol=0.06)


def test_units_of_the_reward_do_not_matter() -> None:
    mdp = world(3, n_terminal=1)
    logs = covering_log(mdp, 300, 3)
    assert logs.rewards is not None
    learner = replace(SMALL, steps=300)
    plain, huge = learner.fit(logs), learner.fit(replace(logs, rewards=1e10 * logs.rewards))
    x = mdp.contexts(np.arange(mdp.n_states))
    np.testing.assert_allclose(huge.q.scores(x), 1e10 * plain.q.scores(x), rtol=1e-3, atol=1e7)


def test_scaled_rewards_have_mean_zero_and_a_small_spread_whatever_the_endings() -> None:
    logs = covering_log(world(4, n_terminal=2), 200, 4)
    replay = Replay.of(torch, logs, gamma=0.9, standardise=True, learner="test")
    used = replay.rewards.numpy()[replay.rows].astype(np.float64)
    np.testing.assert_allclose([used.mean(), used.std()], [0, 0.1], atol=1e-6)
    assert logs.rewards is not None
    discounts = replay.discounts.numpy()[replay.rows]
    back = used * replay.unit + (1 - discounts) * replay.level
    np.testing.assert_allclose(back, logs.rewards[replay.rows], atol=1e-5)


def test_the_policy_is_the_best_of_what_the_log_would_do() -> None:
    features = IdentityMap(width_in=1, intercept=False)
    q = LinearScorer(np.array([[3.0], [2.0], [1.0]]), features)
    logits = np.log([[0.1], [0.4], [0.5]])
    x, mask = np.ones((2, 1)), np.array([[True, True, True], [True, False, True]])

    def actions(threshold: float) -> list[int]:
        policy = BatchConstrained(q=q, imitation=LinearScorer(logits, features), threshold=threshold)
        check_policy(policy, x, mask)
        return [int(a) for a in policy.action_probs(x, mask).argmax(axis=1)]

    assert actions(0.0) == [0, 0]
    assert actions(0.3) == [1, 2]
    assert actions(1.0) == [2, 2]


def test_a_narrow_log_keeps_the_policy_inside_it() -> None:
    mdp = world(5)
    narrow = np.full((6, 3), 0.01)
    narrow[:, 1] = 0.98
    policy = replace(SMALL, steps=600).fit(mdp.log(narrow, 500, 20, 5))
    assert table(mdp, policy).argmax(axis=1).tolist() == [1] * 6


def test_unknown_masks_at_the_end_leave_the_last_decision_out() -> None:
    logs = replace(covering_log(world(6, masked=True), 100, 6), final_candidates=None)
    replay = Replay.of(torch, logs, gamma=0.9, standardise=True, learner="test")
    ends = logs.offsets[1:] - 1
    assert not np.isin(ends[~logs.terminated], replay.rows).any()
    assert len(replay.rows) == len(logs) - len(ends)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold": 1.5}, "threshold in"),
        ({"penalty": -1.0}, "penalty of at least 0"),
        ({"gamma": 1.0}, "gamma in"),
        ({"polyak": 0.0}, "polyak in"),
        ({"copy_every": 0}, "at least 1"),
        ({"learning_rate": 0.0}, "positive learning rate"),
        ({"hidden": (0,)}, "at least 1"),
    ],
)
def test_settings_out_of_range_are_errors(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DiscreteBCQ(**change)  # type: ignore[arg-type]


class TestBadInput:
    learner = replace(SMALL, steps=20)
    logs = covering_log(world(7, masked=True), 50, 7)

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

    def test_nothing_whose_future_is_known(self) -> None:
        logs = LoggedData.from_arrays(
            contexts=np.zeros((3, 1)), actions=[0, 1, 0], rewards=[1.0, 2.0, 3.0], offsets=[0, 1, 2, 3]
        )
        with pytest.raises(DataError, match="a known next context"):
            self.learner.fit(logs)

    def test_one_action_constant_rewards_and_huge_ones_give_policies(self) -> None:
        for logs in (
            chain([True, True, True], [False, True, False], [1.0, 1.0, 1.0]),
            replace(self.logs, rewards=np.full(len(self.logs), -7.0)),
            replace(self.logs, rewards=1e200 * np.asarray(self.logs.rewards)),
        ):
            check_policy(self.learner.fit(logs), logs.contexts[:20])

    def test_rewards_beyond_floats_are_an_error_unless_standardised(self) -> None:
        huge = replace(self.logs, rewards=1e200 * np.asarray(self.logs.rewards))
        with pytest.raises(DataError, match="fit into a float"):
            replace(self.learner, standardise=False).fit(huge)
