from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import DataError
from shpi.features import Identity
from shpi.testing.tabular import random_mdp
from shpi.values import LSTD, Constant, StateValues, WithPast, load_value, save_value, with_past

LINES = LSTD(features=Identity(intercept=False), ridge=1.0)


def ragged(seed: int, users: int = 40) -> LoggedData:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, users)
    n = int(lengths.sum())
    return LoggedData.from_arrays(
        contexts=rng.standard_normal((n, 2)),
        actions=rng.integers(0, 3, n),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        rewards=rng.standard_normal(n) * 5 + 100,
        propensities=np.full(n, 1 / 3),
        n_actions=3,
    )


def hidden_levels(users: int, steps: int, seed: int) -> tuple[LoggedData, np.ndarray]:
    """Each user has a level that no context shows; rewards are the level and noise."""
    rng = np.random.default_rng(seed)
    level = rng.standard_normal(users)
    n = users * steps
    logs = LoggedData.from_arrays(
        contexts=rng.standard_normal((n, 1)),
        actions=rng.integers(0, 2, n),
        offsets=np.arange(users + 1) * steps,
        rewards=np.repeat(level, steps) + 0.5 * rng.standard_normal(n),
        propensities=np.full(n, 0.5),
        n_actions=2,
    )
    return logs, np.repeat(level, steps)


def test_the_past_is_what_a_loop_would_write() -> None:
    logs = ragged(0)
    wide = with_past(logs)
    assert logs.rewards is not None
    for i in range(logs.n_trajectories):
        rows = slice(logs.offsets[i], logs.offsets[i + 1])
        rewards = logs.rewards[rows]
        before = np.concatenate([[0.0], rewards[:-1]])
        means = [0.0, *(rewards[:t].mean() for t in range(1, len(rewards)))]
        np.testing.assert_allclose(wide.contexts[rows, 2], before, rtol=1e-6)
        np.testing.assert_allclose(wide.contexts[rows, 3], means, rtol=1e-6)
        np.testing.assert_allclose(wide.final_contexts[i, 2:], [rewards[-1], rewards.mean()], rtol=1e-6)
    np.testing.assert_array_equal(wide.contexts[:, :2], logs.contexts)
    assert wide.schema.width == 4


def test_a_censored_reward_counts_as_nothing() -> None:
    logs = ragged(1)
    observed = np.ones(len(logs), dtype=bool)
    first = int(logs.offsets[np.flatnonzero(np.diff(logs.offsets) > 1)[0]])
    observed[first] = False
    wide = with_past(replace(logs, reward_observed=observed))
    assert wide.contexts[first + 1, 2] == 0.0


def test_names_of_the_log_s_own_columns_stay_theirs() -> None:
    once = with_past(ragged(2))
    assert len(set(with_past(once).schema.dimensions)) == 6


def test_without_rewards_it_says_what_to_do() -> None:
    with pytest.raises(DataError, match="looks at those before a decision"):
        with_past(replace(ragged(3), rewards=None))


def test_it_finds_a_level_that_contexts_hide() -> None:
    logs, level = hidden_levels(400, 30, seed=5)
    late = np.arange(len(logs)) % 30 >= 10
    blind = StateValues.of(LINES.fit(logs, gamma=0.9, seed=0), logs).rows
    seeing = StateValues.of(WithPast(model=LINES).fit(logs, gamma=0.9, seed=0), logs).rows
    truth = level / (1 - 0.9)
    assert np.mean((seeing - truth)[late] ** 2) < 0.1 * np.mean((blind - truth)[late] ** 2)


def test_where_contexts_are_the_whole_state_it_converges_to_the_exact_value() -> None:
    mdp = random_mdp(5, 2, seed=3, gamma=0.8)
    mu = np.full((5, 2), 0.5)
    logs = mdp.log(mu, 3000, 20, seed=1, ragged=False)
    states = StateValues.of(WithPast(model=LINES).fit(logs, gamma=0.8, seed=0), logs)
    exact = mdp.value(mu)[logs.contexts.argmax(axis=1)]
    assert np.abs(states.rows - exact).max() < 0.1 * np.ptp(exact) + 0.05


def test_contexts_alone_are_valued_at_the_usual_past() -> None:
    logs = ragged(4)
    value = WithPast(model=LINES).fit(logs, gamma=0.9, seed=0)
    wide = with_past(logs).contexts
    wide[:, 2:] = wide[:, 2:].mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(value(logs.contexts), value.value(wide), rtol=1e-6)


def test_a_value_that_sees_no_context_is_unchanged() -> None:
    logs = ragged(6)
    assert (
        StateValues.of(WithPast(model=Constant(2.0)).fit(logs, gamma=0.9, seed=0), logs).rows == 2.0
    ).all()


def test_it_is_saved_whole(tmp_path: Path) -> None:
    logs = ragged(7)
    value = WithPast(model=LINES).fit(logs, gamma=0.9, seed=0)
    save_value(value, tmp_path / "v")
    again = load_value(tmp_path / "v")
    np.testing.assert_array_equal(StateValues.of(again, logs).rows, StateValues.of(value, logs).rows)
