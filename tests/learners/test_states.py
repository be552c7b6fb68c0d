"""What the judge knows of states: which features pi moves, and whether past rewards are part of the state."""

from __future__ import annotations

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.learners._shpi.judge import BOTH, Judge
from shpi.learners._shpi.states import StateMap
from tests.learners.test_judge import judge_of

GAMMA, WIDTH = 0.9, 12  # wider than `NARROW`: lines, and lines with squares


def drifting(users: int, actions: int, push: float, seed: int = 0) -> tuple[LoggedData, np.ndarray]:
    """Twelve columns that drift; action a pushes column 0 by ``push`` if it is odd. And each row's worth.

    Rewards are w_a'x and noise, and mu is uniform.
    """
    rng, steps = np.random.default_rng(seed), 10
    worth = rng.standard_normal((actions, WIDTH)) / np.sqrt(WIDTH)
    x, contexts, taken, rewards = rng.standard_normal((users, WIDTH)), [], [], []
    for _ in range(steps):
        chosen = rng.integers(0, actions, users)
        contexts.append(x)
        taken.append(chosen)
        rewards.append(np.einsum("nd,nd->n", x, worth[chosen]) + rng.standard_normal(users))
        x = 0.8 * x + 0.6 * rng.standard_normal((users, WIDTH))
        x[:, 0] += push * (chosen % 2)
    shown = np.stack(contexts, axis=1).reshape(-1, WIDTH)
    logs = LoggedData.from_arrays(
        contexts=shown, actions=np.stack(taken, axis=1).ravel(), rewards=np.stack(rewards, axis=1).ravel(),
        propensities=np.full(len(shown), 1 / actions), offsets=np.arange(0, len(shown) + 1, steps),
        n_actions=actions, final_contexts=x, final_observed=np.ones(users, dtype=bool),
    )  # fmt: skip
    return logs, shown @ worth.T


def greedy_ratios(logs: LoggedData, worth: np.ndarray) -> np.ndarray:
    assert logs.propensities is not None
    ratios: np.ndarray = (worth.argmax(axis=1) == logs.actions) / logs.propensities
    return ratios


def kept_of(judge: Judge, states: StateMap, rho: np.ndarray) -> np.ndarray:
    """The shares of the changes of the features that count."""
    weights = judge._weights(rho)
    sums = judge._changes(weights)[judge.maps.index(states)]
    return states.moved(weights, sums, BOTH, 0.98, states.delta).kept


def test_states_that_no_action_moves_are_left_as_mu_finds_them() -> None:
    """Ratios of 40: without the shrinkage a third of the estimated visits would be negative."""
    logs, worth = drifting(200, 40, push=0.0)
    judge, rho = judge_of(logs, GAMMA), greedy_ratios(logs, worth)
    lift, states = judge.lift(rho), judge.maps[1]
    truth = float((worth.max(axis=1) - worth.mean(axis=1)).mean()) / (1 - GAMMA * 0.98)
    assert abs(lift.estimate - truth) < 3 * lift.error < 0.6 * truth
    assert np.abs(lift.off_log).max() < 0.05 * lift.estimate
    weights = judge._weights(rho)
    whole = judge._changes(weights)[1].sum(axis=0)[1]
    visits = states.at_rows(np.linalg.solve(states.system(BOTH, 0.98, whole).T, states.starts))[0]
    assert -np.minimum(visits, 0).sum() > 0.3 * np.abs(visits).sum()


def test_a_feature_that_actions_move_counts_and_others_do_not() -> None:
    logs, _ = drifting(2000, 4, push=1.0)
    judge = judge_of(logs, GAMMA)
    kept = kept_of(judge, judge.maps[0], np.where(logs.actions % 2 == 1, 2.0, 0.0))
    assert kept[1] > 0.95  # column 0, behind the intercept
    assert np.delete(kept, 1).mean() < 0.25


def test_the_control_variates_take_out_noise_of_the_ratios() -> None:
    """The error of a lift: a quarter below that of plain ratios, (rho - 1) delta without phi'b."""
    logs, worth = drifting(600, 10, push=0.0)
    logs = logs.with_rewards(worth.max(axis=1))  # the same whatever is done: no noise but that of the ratios
    judge, rho = judge_of(logs, GAMMA), greedy_ratios(logs, worth)
    lift, states = judge.lift(rho), judge.maps[0]
    plain = states.steps.by_user((rho - 1) * states.delta) / (1 - GAMMA * 0.98) / logs.n_users
    assert abs(lift.estimate) < 3 * lift.error
    assert lift.error / np.sqrt(2) < 0.75 * float(np.sqrt(np.sum(plain**2)))


@pytest.mark.parametrize("persistent", [False, True])
def test_past_rewards_are_part_of_the_state_where_they_forecast_returns(persistent: bool) -> None:
    """Users with a mean of their own, which no context shows; or rewards that the context explains."""
    rng, users, steps = np.random.default_rng(0), 400, 15
    n = users * steps
    x = rng.normal(size=(n, 2))
    means = np.repeat(rng.standard_normal(users), steps)
    logs = LoggedData.from_arrays(
        contexts=x, actions=rng.integers(0, 2, n), propensities=np.full(n, 0.5), n_actions=2,
        rewards=(means if persistent else x[:, 0]) + rng.standard_normal(n),
        offsets=np.arange(0, n + 1, steps), final_contexts=rng.normal(size=(users, 2)),
        final_observed=np.ones(users, dtype=bool),
    )  # fmt: skip
    judge = judge_of(logs, GAMMA)
    assert [len(states.columns.usual) for states in judge.maps] == [2 * persistent] * 2
