"""Tables of decisions and actions that are too large to keep are made again by blocks: the same policy."""

from __future__ import annotations

import numpy as np
import pytest

import shpi
from shpi.learners._shpi import pairs
from shpi.learners._shpi.pairs import Block, Decisions, Pairs
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
    logs = wide_log(3_000, 120, masked)
    whole = shpi.OfflineSHPI(progress=False).fit(logs)
    monkeypatch.setattr(pairs, "KEPT", 50_000)  # of 360,000 numbers
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


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("best", [2.0, 30.0])
def test_sizes_that_double_are_tilted_as_a_table(best: float, masked: bool) -> None:
    """An action that mu never takes is the best of all: weights in its units lose their digits."""
    logs, random = wide_log(40, 50, masked), np.random.default_rng(1)
    mu = random.dirichlet(np.ones(50), 40)
    mu[np.arange(40), logs.actions] += 0.1
    mu[:, 7] = 0.0 if 7 not in logs.actions else mu[:, 7]
    if logs.candidates is not None:
        mu *= logs.candidates
    mu /= mu.sum(axis=1, keepdims=True)
    scores = random.normal(size=(40, 50)).astype(np.float32)
    scores[:, 7] = best
    decisions = Decisions.of(logs, TableOfRows(logs.contexts, mu), 20)
    half_size: dict[Block, np.ndarray] = {}
    for size in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0):
        taken = decisions.taken_probs(
            Pairs(make=lambda block: scores[block.rows]), (size, size), half_size=half_size
        )
        expected = tilt(mu.astype(np.float32), scores, size, 1.0)[np.arange(40), logs.actions]
        np.testing.assert_allclose(taken, expected, rtol=1e-3, atol=1e-7)


class TableOfRows:
    """Probabilities [n, A] of known contexts."""

    def __init__(self, contexts: np.ndarray, table: np.ndarray) -> None:
        self.rows = {x.tobytes(): row for x, row in zip(contexts, table, strict=True)}
        self.n_actions = table.shape[1]

    def action_probs(self, contexts: np.ndarray, candidates: np.ndarray | None = None) -> np.ndarray:
        return np.stack([self.rows[x.tobytes()] for x in contexts])


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
