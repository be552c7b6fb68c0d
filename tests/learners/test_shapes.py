"""Which shape f takes: curves where no line can follow the best action, lines where both do."""

from __future__ import annotations

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.learners import OfflineSHPI

ACTIONS, STEPS = 6, 20


def in_the_plane(seed: int, peaks: bool, users: int = 250) -> tuple[LoggedData, np.ndarray]:
    """Contexts wander in a square; and what each action is worth there [n, A].

    With peaks each action is good around a point of its own, without them along a direction of its own.
    """
    rng = np.random.default_rng(seed)
    points = rng.uniform(-1, 1, (ACTIONS, 2))
    x = np.empty((users, STEPS + 1, 2))
    x[:, 0] = rng.uniform(-1, 1, (users, 2))
    for t in range(STEPS):
        x[:, t + 1] = np.clip(0.7 * x[:, t] + 0.5 * rng.uniform(-1, 1, (users, 2)), -1, 1)
    contexts = x[:, :-1].reshape(-1, 2)
    squares = ((contexts[:, None, :] - points) ** 2).sum(axis=2)
    worth = np.exp(-squares / 0.15) if peaks else contexts @ points.T
    actions = rng.integers(ACTIONS, size=len(contexts))
    logs = LoggedData.from_arrays(
        contexts=contexts.astype(np.float32), actions=actions, n_actions=ACTIONS,
        rewards=worth[np.arange(len(actions)), actions] + 0.5 * rng.standard_normal(len(actions)),
        propensities=np.full(len(actions), 1 / ACTIONS), offsets=np.arange(users + 1) * STEPS,
        final_contexts=x[:, -1].astype(np.float32), final_observed=np.ones(users, dtype=bool),
    )  # fmt: skip
    return logs, worth


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize(("peaks", "shape", "least"), [(True, "curves", 0.85), (False, "lines", 0.9)])
def test_curves_only_where_no_line_can_follow(seed: int, peaks: bool, shape: str, least: float) -> None:
    logs, worth = in_the_plane(seed, peaks)
    learned = OfflineSHPI(gamma=0.9).fit(logs)
    attained = np.sum(learned.action_probs(logs.contexts) * worth, axis=1).mean() - worth.mean()
    assert shape in learned.trials[learned.chosen - 1].words
    assert attained > least * (worth.max(axis=1).mean() - worth.mean())
