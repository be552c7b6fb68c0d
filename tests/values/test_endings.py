"""A log that stops and a user who leaves: in the usual table, one row per decision and no last context.

Half of the users are cut at a time that knows nothing of them; what is learned must be what is true.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import shpi
from shpi.advantages import k_step_advantages
from shpi.data._log.cut import taken_as_cut
from shpi.data.logged import LoggedData
from shpi.features import Identity
from shpi.learners import registry
from shpi.protocols import BoolArray
from shpi.testing.tabular import TabularMDP, random_mdp
from shpi.values import LSTD, StateValues
from shpi.values.transitions import next_known, usable_transitions

GAMMA = 0.9


def cut(logs: LoggedData, *, hazard: float, seed: int = 0) -> LoggedData:
    """Half of the users lose what comes after a random decision, and nobody's last context is known."""
    random = np.random.default_rng(seed)
    lengths = np.diff(logs.offsets)
    stops = np.where(random.random(len(lengths)) < 0.5, random.geometric(hazard, len(lengths)), 10**9)
    kept = np.minimum(lengths, stops)
    rows = np.concatenate([np.arange(s, s + k) for s, k in zip(logs.offsets[:-1], kept, strict=True)])
    return LoggedData.from_arrays(
        contexts=logs.contexts[rows],
        actions=logs.actions[rows],
        rewards=np.asarray(logs.rewards)[rows],
        propensities=np.asarray(logs.propensities)[rows],
        n_actions=logs.n_actions,
        offsets=np.append(0, np.cumsum(kept)),
        terminated=logs.terminated & (kept == lengths),
    )


def shop() -> TabularMDP:
    """One state, two actions: the first pays more now and drives more users away, which is not worth it."""
    leave = np.array([0.7, 0.5])
    transition = np.zeros((2, 2, 2))
    transition[0, :, 0], transition[0, :, 1], transition[1, :, 1] = 1 - leave, leave, 1.0
    reward = np.array([[1.28, 1.0], [0.0, 0.0]])
    return TabularMDP(
        transition=transition,
        reward=reward,
        gamma=GAMMA,
        initial=np.array([1.0, 0.0]),
        terminal=np.array([False, True]),
    )


MU = np.full((2, 2), 0.5)


@cache  # nobody changes a log, and making this one takes as long as learning from it
def cut_shop(seed: int) -> LoggedData:
    return cut(shop().log(MU, 20_000, 60, seed=seed, ragged=False), hazard=1.0)


LOOKING_AHEAD: dict[str, dict[str, object]] = {
    **{name: {} for name in ("shpi", "a-mu", "a-pi", "session-rl", "spibb", "mbs", "spibb-shpi", "mbs-shpi")},
    "shpi-paper": {"iterations": 1, "value": "lstd"},
    "bcq": {"steps": 400},
    "cql": {"steps": 400},
}


def test_what_is_usable_does_not_depend_on_the_ending() -> None:
    logs = cut(shop().log(MU, 20_000, 60, seed=1, ragged=False), hazard=1.0)
    last = logs.offsets[1:] - 1
    leaving = np.zeros(len(logs), dtype=bool)
    leaving[last] = logs.terminated
    before, after = (leaving[rows].mean() for rows in (next_known(logs), usable_transitions(logs)))
    assert before > 1.15 * 0.6  # 0.6 of all decisions are a user's last
    np.testing.assert_allclose(after, 0.6, rtol=0.02)
    assert 0 < taken_as_cut(logs).mean() < 0.5
    whole = shop().log(MU, 100, 60, seed=1, ragged=False)
    assert not taken_as_cut(whole).any()  # nothing is lost where everything is known


@pytest.mark.parametrize("lookahead", [1, 5, 20])
def test_the_value_is_that_of_the_whole_log(lookahead: int) -> None:
    world = shop()
    truth = world.value(MU)[0]
    logs = cut(world.log(MU, 20_000, 60, seed=2, ragged=False), hazard=1.0)
    value = LSTD(features=Identity(intercept=False), ridge=0.0, lookahead=lookahead)
    fitted = value.fit(logs, gamma=GAMMA, seed=0)(np.eye(2, dtype=np.float32)[:1])[0]
    np.testing.assert_allclose(fitted, truth, rtol=0.03)


def test_values_of_many_states() -> None:
    world = random_mdp(6, 3, seed=3, gamma=GAMMA)
    mu = world.random_policy(seed=4)
    logs = cut(world.log(mu, 20_000, 60, seed=5, ragged=False), hazard=0.3)
    value = LSTD(features=Identity(intercept=False), ridge=0.0, lookahead=5).fit(logs, gamma=GAMMA, seed=0)
    states = np.flatnonzero(~world.terminal)
    truth = world.value(mu)[states]
    np.testing.assert_allclose(value(world.contexts(states)), truth, atol=0.03 * np.abs(truth).max())


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("form", ["residual", "raw"])
def test_advantages_are_those_of_the_whole_log(k: int, form: str) -> None:
    world = shop()
    logs = cut_shop(seed=6)
    values = StateValues(
        rows=np.full(len(logs), world.value(MU)[0]), final=np.full(logs.n_trajectories, world.value(MU)[0])
    )
    advantages = k_step_advantages(logs, values, k=k, gamma=GAMMA, form=form)  # type: ignore[arg-type]
    truth = world.q(MU)[0] - world.value(MU)[0]
    for action in range(2):
        rows = advantages.valid & (logs.actions == action)
        error = advantages.values[rows].std() / np.sqrt(rows.sum())
        assert abs(advantages.values[rows].mean() - truth[action]) < 4 * error + 0.01


def chance_of_staying(name: str) -> float:
    """What a learner does after a log in which half of the users are cut: how often the action that lasts."""
    policy = registry.make(name, gamma=GAMMA, **LOOKING_AHEAD[name]).fit(cut_shop(seed=9))  # type: ignore[arg-type]
    return float(policy.action_probs(np.eye(2, dtype=np.float32)[:1])[0, 1])


@pytest.mark.parametrize("name", LOOKING_AHEAD)
def test_every_learner_that_looks_ahead_finds_the_right_action(name: str) -> None:
    """Where leaving looks 1.15 times as frequent, staying is worth less than it is, and money now wins."""
    if registry.missing(name):
        pytest.skip(str(registry.missing(name)))
    assert shop().q(MU)[0].argmax() == 1
    assert chance_of_staying(name) > 0.9


@pytest.mark.parametrize("name", ["shpi", "a-mu", "a-pi", "spibb", "mbs", "spibb-shpi", "mbs-shpi"])
def test_from_all_rows_that_tell_they_would_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(logs: LoggedData) -> BoolArray:
        return np.zeros(logs.n_trajectories, dtype=bool)

    monkeypatch.setattr("shpi.values.transitions.taken_as_cut", nobody)
    assert chance_of_staying(name) < 0.6


def test_the_question_can_be_asked_of_a_table() -> None:
    """The same through a column map with a column for leaving."""
    frame = {
        "uid": [1, 1, 2, 3],
        "ts": [0, 1, 0, 0],
        "item": ["a", "b", "a", "b"],
        "r": [1.0, 1, 1, 1],
        "gone": [False, True, False, True],
        "x": [0.0, 1, 2, 3],
    }
    import polars as pl

    columns = shpi.Columns(user="uid", time="ts", action="item", reward="r", terminated="gone", context=["x"])
    logs = shpi.LoggedData.read(pl.DataFrame(frame), columns)
    assert logs.terminated.tolist() == [True, False, True]
    assert usable_transitions(logs).sum() <= next_known(logs).sum() == 3
