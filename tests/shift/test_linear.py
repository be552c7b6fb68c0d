from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.shift import CoverageWarning, LinearRatio, PreparedRatio, RatioEstimator
from shpi.shift import linear as module
from shpi.testing.tabular import random_mdp
from tests.shift.worlds import TABLE, correlation, grid, relative_error, stationary, with_coordinates


def world(seed: int = 0, gamma: float = 0.9, **options):
    mdp = random_mdp(12, 3, seed, gamma=gamma, **options)
    return mdp, mdp.random_policy(1, concentration=3.0), mdp.random_policy(2, concentration=3.0)


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
def test_recovers_the_exact_ratio(gamma):
    for seed in range(3):
        mdp, mu, pi = world(seed, gamma)
        logs = mdp.log(mu, 5000, 20, seed=seed, ragged=False)
        states = mdp.states_of(logs.contexts)
        truth = (mdp.occupancy(pi) / mdp.occupancy(mu, horizon=20))[states]
        ratio = LinearRatio(gamma=gamma, features=TABLE).prepare(logs, seed=0).fit(mdp.policy(pi))
        assert correlation(ratio.weights, truth) > 0.99
        assert relative_error(ratio.weights, truth) < 0.02
        assert ratio.weights.mean() == pytest.approx(1.0, abs=1e-12)
        assert ratio.raw_mean == pytest.approx(1.0, abs=0.01)  # the control variate: exact, whatever rho does
        assert ratio.reliable


def test_converges_as_the_log_grows():
    mdp, mu, pi = world(1)
    errors = []
    for n in (100, 1000, 10_000):
        logs = mdp.log(mu, n, 20, seed=5, ragged=False)
        truth = (mdp.occupancy(pi) / mdp.occupancy(mu, horizon=20))[mdp.states_of(logs.contexts)]
        ratio = LinearRatio(gamma=0.9, features=TABLE).prepare(logs, seed=0).fit(mdp.policy(pi))
        errors.append(relative_error(ratio.weights, truth))
    assert errors[0] > 3 * errors[1] > 9 * errors[2]


def test_the_discounted_reference_recovers_d_pi_over_d_mu():
    mdp, mu, pi = world(2)
    logs = mdp.log(mu, 1000, 60, seed=0, ragged=False)
    states = mdp.states_of(logs.contexts)
    ratio = LinearRatio(gamma=0.9, features=TABLE, reference="behaviour").prepare(logs, seed=0)
    assert correlation(ratio.fit(mdp.policy(pi)).weights, mdp.ratio(pi, mu)[states]) > 0.98
    same = ratio.fit(mdp.policy(mu))
    np.testing.assert_allclose(same.weights, 1.0, atol=1e-12)
    np.testing.assert_allclose(same.next_weights, 1.0, atol=1e-12)


def test_the_logging_policy_itself_has_ratio_one_from_its_stationary_states():
    mdp, mu, _ = world(3)
    mdp = replace(mdp, initial=stationary(mdp, mu))
    logs = mdp.log(mu, 3000, 20, seed=0, ragged=False)
    ratio = LinearRatio(gamma=0.9, features=TABLE).prepare(logs, seed=0).fit(mdp.policy(mu))
    np.testing.assert_allclose(ratio.weights, 1.0, atol=0.1)


def test_true_ends_stop_the_discounting():
    for seed in range(3):
        mdp, mu, pi = world(seed, n_terminal=2)
        logs = mdp.log(mu, 6000, 40, seed=seed, ragged=False)
        assert logs.terminated.mean() > 0.9
        states = mdp.states_of(logs.contexts)
        visited = np.bincount(states, minlength=12) / len(states)
        truth = (mdp.occupancy(pi) / np.where(visited > 0, visited, 1))[states]
        ratio = LinearRatio(gamma=0.9, features=TABLE).prepare(logs, seed=0).fit(mdp.policy(pi))
        assert correlation(ratio.weights, truth) > 0.98
        assert ratio.raw_mean < 0.9  # part of the discounted mass is gone with the users
        np.testing.assert_array_equal(ratio.next_weights[logs.offsets[1:][logs.terminated] - 1], 1.0)


def test_truncation_does_not_stop_the_discounting():
    mdp, mu, pi = world(4, gamma=0.95)
    logs = mdp.log(mu, 10_000, 3, seed=0, ragged=False)  # three steps each, far shorter than 1/(1-gamma)
    states = mdp.states_of(logs.contexts)
    truth = (mdp.occupancy(pi) / mdp.occupancy(mu, horizon=3))[states]
    estimator = LinearRatio(gamma=0.95, features=TABLE)
    assert correlation(estimator.prepare(logs, seed=0).fit(mdp.policy(pi)).weights, truth) > 0.99
    gone = replace(logs, terminated=np.ones(logs.n_trajectories, dtype=bool))
    assert correlation(estimator.prepare(gone, seed=0).fit(mdp.policy(pi)).weights, truth) < 0.9


def test_unknown_final_contexts_are_left_out():
    mdp, mu, pi = world(5)
    logs = mdp.log(mu, 6000, 12, seed=0, ragged=True)
    assert not logs.final_observed.all()
    states = mdp.states_of(logs.contexts)
    known = np.ones(len(logs), dtype=bool)
    known[logs.offsets[1:] - 1] = logs.final_observed
    visited = np.bincount(states[known], minlength=12) / known.sum()
    ratio = LinearRatio(gamma=0.9, features=TABLE).prepare(logs, seed=0).fit(mdp.policy(pi))
    assert correlation(ratio.weights, (mdp.occupancy(pi) / visited)[states]) > 0.98


def test_masked_actions():
    mdp = random_mdp(10, 4, 3, gamma=0.9, masked=True)
    mu, pi = mdp.random_policy(1, concentration=3.0), mdp.random_policy(2, concentration=3.0)
    logs = mdp.log(mu, 3000, 30, seed=0, ragged=False)
    truth = (mdp.occupancy(pi) / mdp.occupancy(mu, horizon=30))[mdp.states_of(logs.contexts)]
    ratio = LinearRatio(gamma=0.9, features=TABLE).prepare(logs, seed=0).fit(mdp.policy(pi))
    assert correlation(ratio.weights, truth) > 0.99


def test_default_features_on_coordinates():
    mdp = grid(10, gamma=0.95)
    mu, tilt = np.full((100, 4), 0.25), np.exp([0.3, -0.3, 0.3, -0.3])
    pi = np.tile(tilt / tilt.sum(), (100, 1))
    logs = mdp.log(mu, 500, 60, seed=1, ragged=False)
    states = mdp.states_of(logs.contexts)
    truth = (mdp.occupancy(pi) / mdp.occupancy(mu, horizon=60))[states]
    there = with_coordinates(logs, 10)
    ratio = LinearRatio(gamma=0.95).prepare(there, seed=0).fit(pi[states, logs.actions])
    assert correlation(ratio.weights, truth) > 0.98


def test_probabilities_of_the_logged_actions_are_enough():
    mdp, mu, pi = world(6)
    logs = mdp.log(mu, 200, 20, seed=0)
    prepared = LinearRatio(gamma=0.9, features=TABLE).prepare(logs, seed=0)
    taken = pi[mdp.states_of(logs.contexts), logs.actions]
    np.testing.assert_allclose(prepared.fit(taken).weights, prepared.fit(mdp.policy(pi)).weights, rtol=1e-6)
    assert isinstance(prepared, PreparedRatio)
    assert isinstance(prepared.config, RatioEstimator)


def test_next_weights_are_the_weights_of_the_next_contexts():
    mdp, mu, pi = world(7)
    logs = mdp.log(mu, 300, 10, seed=0, ragged=False)
    ratio = LinearRatio(gamma=0.9, features=TABLE).prepare(logs, seed=0).fit(mdp.policy(pi))
    of_state = np.full(12, np.nan)
    of_state[mdp.states_of(logs.contexts)] = ratio.weights
    np.testing.assert_allclose(ratio.next_weights, of_state[mdp.states_of(logs.next_contexts())], rtol=1e-9)


def test_sums_of_shards_add_up(monkeypatch):
    mdp, mu, pi = world(8)
    logs = mdp.log(mu, 300, 12, seed=0)
    config = LinearRatio(gamma=0.9, features=TABLE.fit(logs.contexts))
    whole = config.prepare(logs, seed=0)
    rho = pi[mdp.states_of(logs.contexts), logs.actions] / logs.propensities
    direct = whole.sums(rho)
    parts = [logs.select(np.arange(a, b)) for a, b in ((0, 7), (7, 200), (200, 300))]
    ratios = [pi[mdp.states_of(log.contexts), log.actions] / log.propensities for log in parts]
    sums = [config.prepare(log, seed=0).sums(r) for log, r in zip(parts, ratios, strict=True)]
    total = sums[2] + sums[0] + sums[1]
    np.testing.assert_allclose(total.drift, direct.drift, atol=1e-9)
    assert (total.rows, total.trajectories) == (direct.rows, direct.trajectories)
    np.testing.assert_allclose(total.solve(0.9, 1e-5, 1e-5), direct.solve(0.9, 1e-5, 1e-5), rtol=1e-6)
    monkeypatch.setattr(module, "_BLOCK", 17)
    small = replace(config, cache_bytes=0).prepare(logs, seed=0)
    np.testing.assert_allclose(small.sums(rho).drift, direct.drift, atol=1e-9)


# ---------------------------------------------------------------------- coverage


def test_a_policy_that_the_log_does_not_cover_is_called_unreliable_with_numbers():
    mdp = random_mdp(30, 40, 0, gamma=0.99, branching=2)
    mu = np.full((30, 40), 1 / 40)
    greedy = np.eye(40)[np.random.default_rng(0).integers(0, 40, 30)]
    logs = mdp.log(mu, 300, 50, seed=0, ragged=False)
    prepared = LinearRatio(gamma=0.99, features=TABLE).prepare(logs, seed=0)
    far = prepared.fit(mdp.policy(0.95 * greedy + 0.05 * mu))
    assert not far.reliable
    with pytest.warns(CoverageWarning, match=r"action ratios pi/mu are worth 2\.\d% of the rows, below 3%"):
        far.warn()
    near = prepared.fit(mdp.policy(0.2 * greedy + 0.8 * mu))
    assert near.reliable
    assert near.warn() is near
    assert "reliable" in str(near)
    assert "UNRELIABLE" in str(far)


def test_large_weights_are_reported():
    mdp = grid(15, gamma=0.99)
    mu, tilt = np.full((225, 4), 0.25), np.exp([1.0, -1.0, 1.0, -1.0])
    pi = np.tile(tilt / tilt.sum(), (225, 1))
    logs = mdp.log(mu, 200, 60, seed=1, ragged=False)
    states = mdp.states_of(logs.contexts)
    ratio = LinearRatio(gamma=0.99).prepare(with_coordinates(logs, 15), seed=0).fit(pi[states, logs.actions])
    assert any("largest weight" in problem for problem in ratio.problems)


# ---------------------------------------------------------------------- bad input


def test_bad_input_says_what_to_do():
    with pytest.raises(ConfigError, match=r"gamma in \[0, 1\)"):
        LinearRatio(gamma=1.0)
    with pytest.raises(ConfigError, match=r"nu_ridge of at most 0\.1"):
        LinearRatio(gamma=0.99, nu_ridge=10.0)
    with pytest.raises(ConfigError, match="reference 'log' or 'behaviour'"):
        LinearRatio(gamma=0.9, reference="mu")
    mdp, mu, pi = world(0)
    logs = mdp.log(mu, 20, 5, seed=0)
    prepared = LinearRatio(gamma=0.9, features=TABLE).prepare(logs, seed=0)
    with pytest.raises(DataError, match="probabilities of the logged actions"):
        prepared.fit(np.ones(3))
    bare = replace(logs, propensities=None, propensity_mode="absent", behaviour=None)
    with pytest.raises(DataError, match="with_estimated_propensities"):
        LinearRatio(gamma=0.9, features=TABLE).prepare(bare, seed=0).fit(mdp.policy(pi))
    alone = LoggedData.from_arrays(contexts=np.eye(3), actions=[0, 0, 1], offsets=[0, 1, 2, 3])
    with pytest.raises(DataError, match="a next context"):
        LinearRatio(gamma=0.9).prepare(alone, seed=0)


def test_a_policy_that_takes_no_logged_action_is_an_error_or_unreliable():
    mdp, mu, _ = world(0)
    logs = mdp.log(mu, 50, 5, seed=0)
    ratio = LinearRatio(gamma=0.9, features=TABLE).prepare(logs, seed=0).fit(np.zeros(len(logs)))
    assert not ratio.reliable
