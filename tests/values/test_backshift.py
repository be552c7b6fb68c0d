from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.advantages import StateValues, importance_ratios, k_step_advantages
from shpi.errors import ConfigError
from shpi.features import Identity
from shpi.testing.tabular import random_mdp
from shpi.values import LSTD, backshift_rewards, next_known, with_backshift

MDP = random_mdp(6, 3, seed=0, gamma=0.9, n_terminal=1, state_rewards=True)
MU = MDP.random_policy(1)
LOGS = MDP.log(MU, 4_000, horizon=10, seed=0)
VALUES = StateValues.of(lambda x: x @ MDP.value(MU), LOGS)
ONE_HOT = Identity(intercept=False)


def test_definition_and_endings():
    rewards, known = backshift_rewards(VALUES, LOGS, gamma=0.9)
    np.testing.assert_array_equal(known, next_known(LOGS))
    last = LOGS.offsets[1:] - 1
    np.testing.assert_array_equal(rewards[last][LOGS.terminated], VALUES.rows[last][LOGS.terminated])
    inner = np.setdiff1d(np.arange(len(LOGS)), last)
    np.testing.assert_allclose(rewards[inner], VALUES.rows[inner] - 0.9 * VALUES.rows[inner + 1])
    assert (rewards[~known] == 0).all()


def test_the_mean_reward_is_recovered():
    bare = replace(LOGS, rewards=None)
    shifted = with_backshift(bare, VALUES, gamma=0.9, features=ONE_HOT)
    truth = MDP.reward[MDP.states_of(LOGS.contexts), 0]
    assert shifted.reward_observed is None
    assert np.abs(shifted.rewards - truth).max() < 0.15
    assert np.corrcoef(shifted.rewards, truth)[0, 1] > 0.99


def test_the_printed_form_cancels_against_the_same_value():
    printed = with_backshift(LOGS, VALUES, gamma=0.9, smooth=False)
    advantages = k_step_advantages(printed, VALUES, k=3, gamma=0.9)
    np.testing.assert_allclose(advantages.values, 0.0, atol=1e-12)
    ratios = importance_ratios(LOGS, MDP.policy(MDP.random_policy(5)))
    weighted = k_step_advantages(printed, VALUES, k=3, gamma=0.9, ratios=ratios)
    np.testing.assert_allclose(weighted.values, 0.0, atol=1e-12)


def test_the_smoothed_form_keeps_the_advantage_of_actions():
    smooth = with_backshift(LOGS, VALUES, gamma=0.9, features=ONE_HOT)
    advantages = k_step_advantages(smooth, VALUES, k=1, gamma=0.9)
    truth = MDP.q(MU) - MDP.value(MU)[:, None]
    states = MDP.states_of(LOGS.contexts)
    means = np.array(
        [
            [
                advantages.values[advantages.valid & (states == s) & (LOGS.actions == a)].mean()
                for a in range(3)
            ]
            for s in range(5)
        ]
    )
    assert np.corrcoef(means.ravel(), truth[:5].ravel())[0, 1] > 0.95


def test_a_value_fitted_to_backshifted_rewards_is_the_value_again():
    printed = with_backshift(LOGS, VALUES, gamma=0.9, smooth=False)
    again = LSTD(features=ONE_HOT, ridge=1e-6).fit(printed, gamma=0.9, seed=0)
    np.testing.assert_allclose(again(MDP.contexts(np.arange(5))), MDP.value(MU)[:5], rtol=1e-4)


def test_bad_gamma():
    with pytest.raises(ConfigError, match="gamma"):
        backshift_rewards(VALUES, LOGS, gamma=2.0)
