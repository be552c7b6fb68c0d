"""The words of a verdict do not contradict each other."""

from __future__ import annotations

import numpy as np

import shpi
from shpi.ope import SNIPS
from shpi.policies import ConstantPolicy


def logged(users: int, mean: float, chance: float) -> shpi.LoggedData:
    """One decision per user; the second action is rare, and earns ``mean`` more."""
    rng = np.random.default_rng(0)
    actions = (rng.random(users) < chance).astype(int)
    return shpi.LoggedData.from_arrays(
        contexts=np.zeros((users, 1)), actions=actions, rewards=mean * actions + rng.standard_normal(users),
        propensities=np.where(actions == 1, chance, 1 - chance), offsets=np.arange(users + 1), n_actions=2,
        terminated=np.ones(users, bool),
    )  # fmt: skip


def test_nothing_is_called_proven_beside_a_check_that_failed():
    """A rare action that is far better: the bound is above 0, on a handful of effective users."""
    logs = logged(3000, 14.0, 0.002)
    evaluation = shpi.evaluate(ConstantPolicy((0.0, 1.0)), logs, estimators=[SNIPS()], gate=shpi.Gate())
    words = " ".join(evaluation.verdict.reasons)
    assert evaluation.verdict.decision != "ship"
    assert "effective users" in words
    assert "Proven: the lift" not in words
    assert "times as many users to prove it" not in words


def test_no_number_of_users_is_said_plainly():
    logs = logged(400, -1.0, 0.5)
    evaluation = shpi.evaluate(ConstantPolicy((0.2, 0.8)), logs, estimators=[SNIPS()], gate=shpi.Gate())
    assert evaluation.verdict.decision == "hold"
    assert "no number of users" not in " ".join(evaluation.verdict.reasons)
