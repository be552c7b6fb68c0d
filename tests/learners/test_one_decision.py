"""Users with one decision each and no next context: a bandit's log, from which k = 1 can be learned."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import shpi

COLUMNS = shpi.Columns(user="uid", time="ts", action="item", propensity="p", reward="r", context=("x",))


def one_decision_each(users: int, seed: int = 0) -> shpi.LoggedData:
    """A table as exported: item b pays 1 where x > 0 and item a elsewhere, plus noise; nobody returns."""
    rng = np.random.default_rng(seed)
    contexts, items = rng.standard_normal(users), rng.integers(2, size=users)
    rewards = (items == (contexts > 0)) + 0.3 * rng.standard_normal(users)
    table = pl.DataFrame(
        {
            "uid": np.arange(users), "ts": np.arange(users), "item": np.where(items == 1, "b", "a"),
            "p": np.full(users, 0.5), "r": rewards, "x": contexts,
        }
    )  # fmt: skip
    return shpi.LoggedData.read(table, COLUMNS)


@pytest.mark.parametrize("k", [1, None], ids=["k = 1", "defaults"])
def test_a_log_of_single_decisions_is_learned_from(k: int | None) -> None:
    logs = one_decision_each(1_500)
    assert logs.endings == "unknown"
    assert not logs.final_observed.any()
    learner = shpi.OfflineSHPI(progress=False) if k is None else shpi.OfflineSHPI(k=k, progress=False)
    policy = learner.fit(logs)
    fresh = one_decision_each(2_000, seed=1)
    pays = (fresh.contexts[:, 0] > 0).astype(np.int64)
    share = policy.action_probs(fresh.contexts)[np.arange(len(pays)), pays].mean()
    assert share > 0.9  # mu: 0.5; a learner that needs next contexts refuses this log
    assert len(logs) == logs.ledger.rows_used == 1_500
