from __future__ import annotations

import numpy as np
import pytest

from shpi.errors import ConfigError, DataError
from shpi.features import Identity
from shpi.oracles import Ridge
from shpi.shift import LinearRatio, Ratio, penalised_advantages, penalised_rewards
from shpi.testing.tabular import random_mdp
from tests.shift.worlds import TABLE


def divergence(p, q) -> float:
    return float((p * np.log(p / q)).sum())


def some_ratio(n: int = 4) -> Ratio:
    weights = np.array([0.0, 0.5, 1.0, 2.5])[:n]
    return Ratio(
        weights=weights, next_weights=weights[::-1].copy(), raw_mean=1.0, raw_min=0.0, raw_max=2.5,
        share_negative=0.0, share_effective_actions=1.0,
    )  # fmt: skip


def test_formulas():
    ratio, advantages = some_ratio(), np.arange(4.0)
    w, following = np.maximum(ratio.weights, 0.01), np.maximum(ratio.next_weights, 0.01)
    np.testing.assert_allclose(
        penalised_advantages(advantages, ratio, 2.0, at="here"), advantages - 2.0 * np.log(w)
    )
    np.testing.assert_allclose(
        penalised_advantages(advantages, ratio, 2.0), advantages - 2.0 * (np.log(following) - np.log(w))
    )
    np.testing.assert_allclose(
        penalised_rewards(advantages, ratio, 2.0, 0.9), advantages - 1.8 * np.log(following)
    )
    for at in ("here", "next"):
        np.testing.assert_array_equal(penalised_advantages(advantages, ratio, 0.0, at=at), advantages)
    assert np.isfinite(penalised_advantages(advantages, ratio, 1.0)).all()


def improve(mdp, mu, strength, at, seed, rounds=2):
    """Soft improvements of mu on penalised advantages; the policy table of the last round."""
    logs = mdp.log(mu, 2000, 30, seed=seed, ragged=False)
    states = mdp.states_of(logs.contexts)
    advantage = mdp.q(mu) - mdp.value(mu)[:, None]
    scale = advantage.std()
    ratios = LinearRatio(gamma=mdp.gamma, features=TABLE, reference="behaviour").prepare(logs, seed=0)
    oracle = Ridge(features=Identity(), penalty=1e-4, shared_penalty=1e-4).prepare(logs, seed=0)
    pi = mu
    for _ in range(rounds):
        ratio = ratios.fit(mdp.policy(pi))
        targets = advantage[states, logs.actions]
        targets = penalised_advantages(targets, ratio, strength * scale, at=at)
        scores = oracle.fit(targets).scores(np.eye(mdp.n_states))
        pi = mu * np.exp((scores - scores.max(axis=1, keepdims=True)) / (0.5 * scale))
        pi /= pi.sum(axis=1, keepdims=True)
    return pi


@pytest.mark.parametrize("gamma", [0.8, 0.95])
def test_a_positive_strength_brings_the_state_distributions_together(gamma):
    for seed in range(3):
        mdp = random_mdp(12, 4, seed, gamma=gamma)
        mu = mdp.random_policy(1, concentration=5.0)
        base = mdp.occupancy(mu)
        gaps = [
            divergence(base, mdp.occupancy(improve(mdp, mu, strength, "next", seed)))
            for strength in (0.0, 0.3, 1.0)
        ]
        assert gaps[0] > gaps[1] > gaps[2]
        assert gaps[2] < 0.75 * gaps[0]


def test_as_printed_the_penalty_changes_no_decision_of_a_saturated_oracle():
    mdp = random_mdp(12, 4, 0, gamma=0.9)
    mu = mdp.random_policy(1, concentration=5.0)
    plain, printed = (improve(mdp, mu, strength, "here", 0) for strength in (0.0, 1.0))
    np.testing.assert_allclose(printed, plain, atol=1e-3)


def test_the_printed_sign_is_that_of_minus_the_divergence():
    mdp = random_mdp(8, 3, 0, gamma=0.9)
    mu, pi = mdp.random_policy(1), mdp.random_policy(2)
    base, other = mdp.occupancy(mu), mdp.occupancy(pi)
    assert float(base @ np.log(mdp.ratio(pi, mu))) == pytest.approx(-divergence(base, other))


def test_bad_input_says_what_to_do():
    with pytest.raises(DataError, match="one per row of the ratio"):
        penalised_advantages(np.zeros(3), some_ratio(), 1.0)
    with pytest.raises(ConfigError, match="strength of at least 0"):
        penalised_advantages(np.zeros(4), some_ratio(), -1.0)
    with pytest.raises(ConfigError, match="'next' or 'here'"):
        penalised_advantages(np.zeros(4), some_ratio(), 1.0, at="there")
