"""Tables of decisions and actions that are too large to keep are made again by blocks: the same policy."""

from __future__ import annotations

import numpy as np
import pytest

import shpi
from shpi.learners._shpi import pairs
from shpi.learners._shpi.pairs import tilted
from shpi.learners.base import learned_from
from shpi.policies.near_mu.tilted import tilt


def wide_log(n: int, actions: int, masked: bool = False) -> shpi.LoggedData:
    random = np.random.default_rng(0)
    contexts = random.normal(size=(n, 3))
    allowed = random.random((n, actions)) < (0.7 if masked else 2.0)
    allowed[:, :2] = True
    logits = np.where(allowed, contexts @ random.normal(size=(3, actions)) / 2, -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    taken = (weights.cumsum(axis=1) > random.random((n, 1))).argmax(axis=1)
    return shpi.LoggedData.from_arrays(
        contexts=contexts,
        actions=taken,
        rewards=(taken % 5 == 0) + random.normal(size=n),
        propensities=weights[np.arange(n), taken],
        candidates=allowed if masked else None,
        n_actions=actions,
        offsets=np.arange(0, n + 1, 10),
    )


@pytest.mark.parametrize("masked", [False, True])
def test_blocks_and_tables_give_the_same_policy(monkeypatch: pytest.MonkeyPatch, masked: bool) -> None:
    logs = wide_log(1_500, 120, masked)
    whole = shpi.OfflineSHPI(progress=False).fit(logs)
    monkeypatch.setattr(pairs, "KEPT", 25_000)  # of 180,000 numbers
    blocks = shpi.OfflineSHPI(progress=False).fit(logs)
    returned = [[trial.words for trial in p.trials if trial.returned] for p in (blocks, whole)]
    assert returned[0] == returned[1]
    assert whole.proven
    assert whole.lift is not None
    assert blocks.lift is not None
    assert blocks.lift.estimate == pytest.approx(whole.lift.estimate, rel=0.02)  # f's spread is of a sample
    mask = None if logs.candidates is None else logs.candidates[:300]
    difference = blocks.action_probs(logs.contexts[:300], mask) - whole.action_probs(
        logs.contexts[:300], mask
    )
    assert np.abs(difference).sum(axis=1).max() < 0.05


@pytest.mark.parametrize("size", [0.5, 8.0, 64.0])
def test_a_block_is_tilted_as_a_table(size: float) -> None:
    random = np.random.default_rng(1)
    mu = random.dirichlet(np.ones(50), 40).astype(np.float32)
    mu[:, 7] = 0.0  # never taken, and the best of all
    scores = random.normal(size=(40, 50)).astype(np.float32)
    scores[:, 7] = 30.0
    actions = random.integers(8, 50, 40)

    expected = tilt(mu, scores, size, 1.0)[np.arange(40), actions]
    np.testing.assert_allclose(tilted(mu, scores, size, actions), expected, rtol=1e-3, atol=1e-30)


@pytest.mark.parametrize(
    ("rows", "actions", "looked_at"),
    [(200_000, 10, 200_000), (200_000, 1_000, 50_000), (200_000, 10_000, 100_000), (200_000, 40_000, 25_000)],
)
def test_every_action_has_some_decisions(rows: int, actions: int, looked_at: int) -> None:
    """Before, 5,000 of 200,000 decisions with 10,000 actions, from which nothing can be learned."""
    logs = shpi.LoggedData.from_arrays(
        contexts=np.zeros((rows, 1)),
        actions=np.zeros(rows, dtype=np.int64),
        rewards=np.zeros(rows),
        propensities=np.ones(rows),
        n_actions=actions,
        offsets=np.arange(0, rows + 1, 10),
    )
    assert len(learned_from(logs, seed=0)) == looked_at


def test_wide_contexts_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 columns and 100,000 decisions took 5 GB."""
    monkeypatch.setattr("shpi.learners.base.MOST_CELLS", 40_000)
    rows, width = 4_000, 20
    logs = shpi.LoggedData.from_arrays(
        contexts=np.zeros((rows, width), dtype=np.float32),
        actions=np.zeros(rows, dtype=np.int64),
        rewards=np.zeros(rows),
        propensities=np.ones(rows),
        n_actions=2,
        offsets=np.arange(0, rows + 1, 10),
    )
    assert len(learned_from(logs, seed=0)) == 2_000
