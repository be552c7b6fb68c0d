"""The finite worlds themselves: exact quantities against each other and against simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.errors import ConfigError
from shpi.testing import check_policy
from shpi.testing.tabular import random_mdp, with_gamma

MDP = random_mdp(7, 3, seed=0, gamma=0.9, n_terminal=1, masked=True, noise=0.2)
MU, PI = MDP.random_policy(1), MDP.random_policy(2)


def test_values_solve_their_equations():
    value, q = MDP.value(MU), MDP.q(MU)
    np.testing.assert_allclose(np.sum(MU * q, axis=1), value, atol=1e-12)
    assert (value[MDP.terminal] == 0).all()
    long = MDP.values_by_time(MU, 400)
    np.testing.assert_allclose(long[0], value, atol=1e-12)


def test_k_step_advantages_at_their_ends():
    value = MDP.value(MU)
    live = ~MDP.terminal
    np.testing.assert_allclose(MDP.k_step_advantage(PI, MU, 1)[live], (MDP.q(MU) - value[:, None])[live])
    far = MDP.k_step_advantage(PI, MU, 500)
    np.testing.assert_allclose(far[live], (MDP.q(PI) - value[:, None])[live], atol=1e-10)
    zero = MDP.k_step_advantage(PI, MU, 1, bonus=np.zeros(7))
    np.testing.assert_array_equal(zero, MDP.reward)


def test_the_optimal_policy_cannot_be_improved_and_obeys_masks():
    best, policy = MDP.optimal()
    scores = np.where(MDP.allowed, MDP.q(policy), -np.inf)
    np.testing.assert_allclose(scores.max(axis=1), best, atol=1e-9)
    assert (policy[~MDP.allowed] == 0).all()
    for seed in range(20):
        assert (MDP.value(MDP.random_policy(seed)) <= best + 1e-9).all()


def test_logs_have_the_frequencies_of_the_world():
    logs = MDP.log(MU, 20_000, horizon=6, seed=0, ragged=False)
    states = MDP.states_of(logs.contexts)
    share = np.bincount(states, minlength=7) / len(states)
    np.testing.assert_allclose(share, MDP.occupancy(MU, horizon=6), atol=0.01)
    for s in range(6):
        rows = states == s
        np.testing.assert_allclose(
            np.bincount(logs.actions[rows], minlength=3) / rows.sum(), MU[s], atol=0.03
        )
        np.testing.assert_allclose(logs.propensities[rows], MU[s][logs.actions[rows]])
    returns = np.add.reduceat(logs.rewards * 0.9**logs.steps, logs.offsets[:-1])
    truth = MDP.initial @ MDP.values_by_time(MU, 6)[0]
    assert abs(returns.mean() - truth) < 4 * returns.std() / np.sqrt(len(returns))
    ended = MDP.states_of(logs.final_contexts[logs.terminated])
    assert MDP.terminal[ended].all()
    assert not MDP.terminal[states].any()


def test_ragged_logs_are_reproducible_and_obey_masks():
    first, second = (MDP.log(MU, 50, horizon=9, seed=4) for _ in range(2))
    assert first.fingerprint() == second.fingerprint()
    assert first.candidates[np.arange(len(first)), first.actions].all()
    assert len(set(np.diff(first.offsets))) > 3
    assert first.n_sessions > first.n_trajectories


def test_occupancy_and_ratio():
    discounted = MDP.occupancy(PI)
    assert discounted.sum() == pytest.approx(1.0)
    ratio = MDP.ratio(PI, MU)
    live = ~MDP.terminal
    np.testing.assert_allclose((ratio * MDP.occupancy(MU))[live], discounted[live])
    np.testing.assert_allclose(MDP.ratio(MU, MU)[live], 1.0)
    plain = replace(MDP, terminal=np.zeros(7, dtype=bool))
    assert np.abs(with_gamma(plain, 0.5).occupancy(PI) - plain.occupancy(PI)).max() > 0.01


@pytest.mark.parametrize("encoding", ["one-hot", "index"])
def test_tables_act_as_policies_on_both_encodings(encoding):
    mdp = replace(MDP, encoding=encoding, allowed=None)
    table = mdp.random_policy(3)
    states = np.arange(6)
    contexts = mdp.contexts(states)
    check_policy(mdp.policy(table), contexts, saves=encoding == "index")
    np.testing.assert_allclose(mdp.policy(table).action_probs(contexts), table[:6])
    np.testing.assert_array_equal(mdp.states_of(contexts), states)


def test_worlds_that_make_no_sense():
    with pytest.raises(ConfigError, match="sums other than 1"):
        replace(MDP, initial=np.ones(7) * (~MDP.terminal))
    with pytest.raises(ConfigError, match="terminal"):
        replace(MDP, initial=np.eye(7)[6])
    with pytest.raises(ConfigError, match="transition"):
        replace(MDP, transition=MDP.transition[:, :2])
