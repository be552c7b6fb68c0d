from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.errors import ConfigError, DataError
from shpi.shift import DualDICE, PreparedRatio
from shpi.shift.dualdice import _network, _tensors
from shpi.testing.tabular import random_mdp
from tests.shift.worlds import TABLE, correlation

torch = pytest.importorskip("torch", reason="needs the extra neural")


def small(seed: int = 0, gamma: float = 0.8, **options):
    mdp = random_mdp(5, 3, seed, gamma=gamma, **options)
    mu, pi = mdp.random_policy(1, concentration=3.0), mdp.random_policy(2, concentration=3.0)
    return mdp, mu, pi, mdp.log(mu, 1000, 20, seed=seed, ragged=False)


QUICK = DualDICE(gamma=0.8, hidden=(32, 32), steps=1500, batch=256, learning_rate=3e-3, features=TABLE)


def test_recovers_the_exact_ratio():
    mdp, mu, pi, logs = small(1)
    states = mdp.states_of(logs.contexts)
    truth = (mdp.occupancy(pi) / mdp.occupancy(mu, horizon=20))[states]
    ratio = QUICK.prepare(logs, seed=0).fit(mdp.policy(pi))
    assert correlation(ratio.weights, truth) > 0.95
    assert ratio.weights.mean() == pytest.approx(1.0)
    assert ratio.raw_mean == pytest.approx(1.0, abs=0.1)
    assert ratio.reliable


def test_true_ends_stop_the_discounting_and_unknown_ends_are_left_out():
    mdp, mu, pi, _ = small(3, n_terminal=1)
    logs = mdp.log(mu, 60, 6, seed=3, ragged=True)
    data = _tensors(torch, QUICK.prepare(logs, seed=0), mdp.policy(pi))
    last = logs.offsets[1:] - 1
    mass = data["pi_next"].sum(dim=1).numpy()
    assert logs.terminated.any()
    assert not logs.terminated.all()
    np.testing.assert_allclose(mass[last], ~logs.terminated, atol=1e-6)  # truncation goes on
    np.testing.assert_allclose(np.delete(mass, last), 1.0, atol=1e-6)
    following = data["inputs_next"].numpy().argmax(axis=1)
    np.testing.assert_array_equal(following, mdp.states_of(logs.next_contexts()))
    hidden = last[~(logs.terminated | logs.final_observed)]
    assert len(hidden)
    assert not np.isin(hidden, data["rows"].numpy()).any()  # rows without a next context are never drawn


def test_the_same_seed_gives_the_same_ratio_and_the_thread_setting_survives():
    mdp, _, pi, logs = small()
    config, threads = replace(QUICK, steps=20), torch.get_num_threads()
    prepared = config.prepare(logs, seed=1)
    first, again = (prepared.fit(mdp.policy(pi)).weights for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = config.prepare(logs, seed=2).fit(mdp.policy(pi)).weights
    assert not np.array_equal(first, other)
    assert torch.get_num_threads() == threads
    assert isinstance(prepared, PreparedRatio)


def test_mu_from_a_policy_equals_mu_from_the_log():
    mdp, mu, pi, logs = small()
    config = replace(QUICK, steps=30)
    from_log = config.prepare(logs, seed=1).fit(mdp.policy(pi))
    given = config.prepare(replace(logs, behaviour=None), seed=1).fit(mdp.policy(pi), mdp.policy(mu))
    np.testing.assert_allclose(given.weights, from_log.weights, rtol=1e-6)
    ends = logs.offsets[1:] - 1
    np.testing.assert_array_equal(from_log.next_weights[ends], from_log.weights[ends])
    assert not np.array_equal(given.next_weights[ends], given.weights[ends])


def test_without_mu_the_logged_action_decides():
    mdp, _, pi, logs = small()
    bare = replace(logs, behaviour=None)
    config = replace(QUICK, steps=30)
    assert np.isfinite(config.prepare(bare, seed=1).fit(mdp.policy(pi)).weights).all()
    greedy = np.eye(3)[pi.argmax(axis=1)]
    with pytest.raises(DataError, match="pass mu to fit"):
        config.prepare(bare, seed=1).fit(mdp.policy(greedy))


def test_a_concatenated_network_is_the_action_as_an_input():
    draw = torch.Generator().manual_seed(0)
    network = _network(torch, "concatenated", (4, 8, 6, 3), draw)
    x = torch.randn(5, 4)
    with torch.no_grad():
        outputs = network(x)
        for action in range(3):
            hot = torch.zeros(5, 3)
            hot[:, action] = 1.0
            direct = network.later(torch.relu(network.first(torch.cat([x, hot], dim=1))))[:, 0]
            torch.testing.assert_close(outputs[:, action], direct)


def test_the_literal_recipe_is_the_authors_and_runs():
    literal = DualDICE.literal()
    assert (literal.gamma, literal.steps, literal.batch, literal.learning_rate) == (0.99, 100_000, 2048, 1e-4)
    assert (literal.norm_penalty, literal.average, literal.hidden, literal.clip) == (0.0, 0.0, (64, 64), 1.0)
    mdp, _, pi, logs = small(gamma=0.99)
    ratio = replace(literal, steps=3, batch=64).prepare(logs, seed=0).fit(mdp.policy(pi))
    assert ratio.weights.shape == (len(logs),)


def test_bad_input_says_what_to_do():
    mdp, _, pi, logs = small()
    with pytest.raises(ConfigError, match="pass the policy itself"):
        QUICK.prepare(logs, seed=0).fit(pi[mdp.states_of(logs.contexts), logs.actions])
    with pytest.raises(ConfigError, match="at least one step"):
        DualDICE(gamma=0.9, steps=0)
    with pytest.raises(ConfigError, match=r"average in \[0, 1\]"):
        DualDICE(gamma=0.9, average=2.0)
    with pytest.raises(ConfigError, match="'heads' or 'concatenated'"):
        DualDICE(gamma=0.9, network="convolution")
