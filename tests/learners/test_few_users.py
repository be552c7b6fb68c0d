"""With a handful of users the logging policy is returned, or what these users can prove; nothing else."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import shpi
from shpi import LoggedData
from shpi.learners._shpi.shapes import few_contexts
from shpi.learners.improved import ImprovedPolicy

COLUMNS = {
    "user": "u", "time": "t", "action": "a", "propensity": "p", "reward": "r", "context": ["x", "y"],
}  # fmt: skip


def table(users: int, steps: int, seed: int, *, effect: float = 0.0, erratic: bool = False) -> LoggedData:
    """Rewards that depend on the action by ``effect``; an erratic mu has unforeseeable favourites."""
    rng, n = np.random.default_rng(seed), users * steps
    favourite = rng.integers(3, size=n)
    follows = rng.random(n) < (0.95 if erratic else 0.0)
    actions = np.where(follows, favourite, rng.integers(3, size=n))
    base = 0.05 / 3 if erratic else 1 / 3
    frame = pl.DataFrame(
        {
            "u": np.repeat(np.arange(users), steps),
            "t": np.tile(np.arange(steps), users),
            "a": actions,
            "p": np.where(erratic & (actions == favourite), 0.95 + base, base),
            "r": effect * (actions == 2) + rng.standard_normal(n),
            "x": rng.standard_normal(n),
            "y": rng.standard_normal(n),
        }
    )
    return LoggedData.read(frame, COLUMNS)


def learn(logs: LoggedData, seed: int = 0) -> ImprovedPolicy:
    return shpi.OfflineSHPI(seed=seed, progress=False).fit(logs)


@pytest.mark.parametrize("users", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("erratic", [False, True])
def test_fewer_than_ten_users_get_mu_or_a_proof(users: int, erratic: bool) -> None:
    """Where mu is erratic, a proof that the learned advantages point the right way."""
    for seed in range(2):
        policy = learn(table(users, 40, seed, effect=1.0, erratic=erratic), seed)
        assert policy.proven or policy.chosen == 0 or (erratic and users > 3)


def test_an_erratic_mu_is_rarely_left_for_nothing_by_few_users() -> None:
    """Forty logs without any effect: at 95 % more than six have a probability of 0.3 %."""
    logs = [table(users, 40, seed, erratic=True) for users in (5, 9) for seed in range(300, 320)]
    assert sum(learn(log).chosen > 0 for log in logs) <= 6


def test_nothing_is_proven_from_nothing_by_few_users() -> None:
    """Sixteen logs without any effect: at 95 % more than three proofs have a probability of 0.7 %."""
    proofs = [learn(table(9, 10, seed), seed).proven for seed in range(200, 216)]
    assert sum(proofs) <= 3


def test_contexts_that_never_repeat_are_no_table() -> None:
    assert few_contexts(table(9, 15, 0)) is None
    logs = table(9, 15, 0)
    repeated = logs.contexts.round(0).clip(-1, 1)
    frame = pl.DataFrame({"u": logs.user_codes[logs.trajectory_of_row], "t": np.tile(np.arange(15), 9),
                          "a": logs.actions, "p": logs.propensities, "r": logs.rewards,
                          "x": repeated[:, 0], "y": repeated[:, 1]})  # fmt: skip
    assert few_contexts(LoggedData.read(frame, COLUMNS)) is not None
