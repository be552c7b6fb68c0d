from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi._torch.perceptron import Perceptron, perceptrons
from shpi.errors import ActionError, ConfigError, DataError
from shpi.learners import DiscreteCQL
from shpi.testing import check_learner, check_policy
from tests.learners.rivals import covering_log, shortfall, table, with_empty_candidates, without, world
from tests.learners.test_bcq import random_batch

torch = pytest.importorskip("torch")

SMALL = DiscreteCQL(
    gamma=0.9, alpha=0.005, hidden=(32,), learning_rate=3e-3, batch=64, steps=800, polyak=0.02, seed=1
)


def test_it_keeps_what_every_learner_keeps() -> None:
    check_learner(replace(SMALL, gamma=0.3, steps=120), attains=0.5)


@pytest.mark.parametrize(
    ("seed", "options"), [(0, {}), (1, {"n_terminal": 1, "masked": True}), (2, {"masked": True})]
)
def test_with_full_coverage_it_finds_the_optimum(seed: int, options: dict[str, object]) -> None:
    mdp = world(seed, **options)
    assert shortfall(mdp, SMALL.fit(covering_log(mdp, 2_000, seed))) < 0.01


def test_the_gradient_by_hand_is_that_of_the_printed_loss() -> None:
    rng = np.random.default_rng(1)
    batch, learner = random_batch(rng), DiscreteCQL(alpha=0.7)
    values, (q,) = perceptrons(torch, (3, 16, 5), 1, rng)
    target = q.copy()
    target.values.mul_(2.0)
    with torch.no_grad():
        learner._write_gradient(q, batch, target)

    free = values.detach().clone().requires_grad_()
    w0, b0, w1, b1 = Perceptron(torch, q.sizes, free).layers

    def forward(x: object) -> object:
        return torch.relu(x @ w0 + b0) @ w1 + b1

    with torch.no_grad():
        best = forward(batch.following).masked_fill(batch.forbidden_next, -torch.inf).argmax(1, keepdim=True)
        y = batch.rewards + batch.discounts * target(batch.following).gather(1, best)[:, 0]
    scores = forward(batch.contexts)
    taken = scores.gather(1, batch.actions)[:, 0]
    spread = scores.masked_fill(batch.forbidden, -torch.inf).logsumexp(1)
    loss = torch.nn.functional.smooth_l1_loss(taken, y) + 0.7 * (spread - taken).mean()
    loss.backward()
    torch.testing.assert_close(values.grad, free.grad, rtol=1e-4, atol=1e-6)


def test_a_large_alpha_imitates_the_log_and_none_does_not() -> None:
    mdp = world(5)
    narrow = np.full((6, 3), 0.05)
    narrow[:, 1] = 0.9
    logs = mdp.log(narrow, 800, 20, 5)
    actions = {
        alpha: table(mdp, replace(SMALL, alpha=alpha, steps=400).fit(logs)).argmax(axis=1).tolist()
        for alpha in (0.0, 100.0)
    }
    assert actions[100.0] == [1] * 6
    assert actions[0.0] != [1] * 6


@pytest.mark.parametrize(
    ("change", "message"), [({"alpha": -1.0}, "alpha of at least 0"), ({"steps": 0}, "at least 1")]
)
def test_settings_out_of_range_are_errors(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DiscreteCQL(**change)  # type: ignore[arg-type]


class TestBadInput:
    learner = replace(SMALL, steps=20)
    logs = covering_log(world(7, masked=True), 50, 7)

    def test_no_rewards(self) -> None:
        with pytest.raises(DataError, match="a log with rewards"):
            self.learner.fit(without(self.logs, "rewards"))

    def test_a_row_without_candidates(self) -> None:
        with pytest.raises(ActionError, match="at least one allowed action"):
            self.learner.fit(with_empty_candidates(self.logs, 3))

    def test_a_learning_rate_that_explodes_is_an_error_and_not_a_policy_of_nan(self) -> None:
        with pytest.raises(DataError, match="a network that converges"):
            replace(self.learner, learning_rate=1e38, steps=200).fit(self.logs)

    def test_constant_and_huge_rewards_give_policies(self) -> None:
        for rewards in (np.zeros(len(self.logs)), -1e200 * np.asarray(self.logs.rewards)):
            policy = self.learner.fit(replace(self.logs, rewards=rewards))
            check_policy(policy, self.logs.contexts[:20], np.asarray(self.logs.candidates)[:20])
