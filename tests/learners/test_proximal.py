"""OfflineSHPI with a proximal penalty: on finite worlds it stays nearer to the states of the log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shpi.advantages import StateValues, k_step_advantages
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features import Identity
from shpi.learners import OfflineSHPI
from shpi.learners._shpi.proximal import Proximal, log_weights
from shpi.oracles import Ridge
from shpi.protocols import Float64Array, Policy
from shpi.shift import CoverageWarning, Limits, LinearRatio, Ratio
from shpi.testing.tabular import TabularMDP, random_mdp
from shpi.values import Given

TABULAR = Ridge(features=Identity(), penalty=1e-3, shared_penalty=1e-3)
INDICATORS = Identity(intercept=False)


class ExactRatio:
    """d_pi / d_mu by linear algebra, for the policy that has given pi(a_t|x_t) at every (x, a) of the log."""

    def __init__(self, mdp: TabularMDP, mu: Float64Array) -> None:
        self.mdp, self.mu = mdp, mu

    def prepare(self, logs: LoggedData, *, seed: int) -> ExactRatio:
        self.logs = logs
        return self

    def fit(self, pi: Any, mu: Policy | None = None) -> Ratio:
        states, last = self.mdp.states_of(self.logs.contexts), self.logs.offsets[1:] - 1
        table = np.zeros_like(self.mu)
        table[states, self.logs.actions] = pi
        table /= table.sum(axis=1, keepdims=True)
        w = self.mdp.ratio(table, self.mu)
        following = np.append(w[states][1:], 0.0)
        following[last] = w[self.mdp.states_of(self.logs.final_contexts)]
        return Ratio(
            weights=w[states], next_weights=following, raw_mean=1.0, raw_min=float(w.min()),
            raw_max=float(w.max()), share_negative=0.0, share_effective_actions=1.0,
        )  # fmt: skip


def world(seed: int) -> tuple[TabularMDP, Float64Array, LoggedData]:
    mdp = random_mdp(12, 4, seed, gamma=0.9)
    mu = mdp.random_policy(1, concentration=5.0)
    return mdp, mu, mdp.log(mu, 1000, 20, seed=seed, ragged=False)


def learn(mdp: TabularMDP, mu: Float64Array, logs: LoggedData, **settings: Any) -> Float64Array:
    """The policy table after six rounds, with the exact V."""
    value = mdp.value(mu)
    policy = OfflineSHPI(
        k=3, gamma=0.9, iterations=6, oracle=TABULAR, tested=False, tolerance=0.0,
        value=Given(lambda x: value[mdp.states_of(np.asarray(x))]), **settings,
    ).fit(logs)  # fmt: skip
    return policy.action_probs(mdp.contexts(np.arange(mdp.n_states)))


def divergence(mdp: TabularMDP, mu: Float64Array, pi: Float64Array) -> float:
    base = mdp.occupancy(mu)
    return float((base * np.log(base / mdp.occupancy(pi))).sum())


@pytest.mark.parametrize("exact", [True, False])
def test_the_state_distributions_come_together_and_the_policy_still_improves(exact: bool) -> None:
    divergences = []
    for seed in range(4):
        mdp, mu, logs = world(seed)
        closed = LinearRatio(gamma=0.9, features=INDICATORS, reference="behaviour")
        ratio = ExactRatio(mdp, mu) if exact else closed
        tables = [learn(mdp, mu, logs, proximal=strength, ratio=ratio) for strength in (0.0, 3.0)]
        divergences.append([divergence(mdp, mu, table) for table in tables])
        gains = [float(mdp.initial @ (mdp.value(table) - mdp.value(mu))) for table in tables]
        assert gains[1] > 0.75 * gains[0] > 0
    plain, near = np.mean(divergences, axis=0)
    assert near < 0.9 * plain
    assert all(after <= 1.02 * before for before, after in divergences)


def test_zero_is_the_plain_algorithm_and_asks_for_no_ratio() -> None:
    class Never:
        def prepare(self, logs: LoggedData, *, seed: int) -> Any:
            raise AssertionError

    mdp, mu, logs = world(0)
    np.testing.assert_array_equal(learn(mdp, mu, logs), learn(mdp, mu, logs, proximal=0.0, ratio=Never()))


def test_the_scale_of_the_rewards_does_not_matter() -> None:
    mdp, _, logs = world(1)
    assert logs.rewards is not None
    ratio = LinearRatio(gamma=0.9, features=INDICATORS, reference="behaviour")
    settings: dict[str, Any] = {
        "k": 3, "gamma": 0.9, "iterations": 4, "oracle": TABULAR, "tested": False, "proximal": 1.0,
        "ratio": ratio,
    }  # fmt: skip
    x = mdp.contexts(np.arange(12))
    plain, scaled = (
        OfflineSHPI(**settings).fit(logs.with_rewards(c * logs.rewards)).action_probs(x)
        for c in (1.0, 1024.0)
    )
    np.testing.assert_allclose(plain, scaled, atol=1e-9)


def test_the_penalty_is_paid_where_the_window_ends() -> None:
    mdp, mu, logs = world(2)
    bonus, w = StateValues.zeros(logs), mdp.ratio(mdp.random_policy(7), mu)
    states, last = mdp.states_of(logs.contexts), logs.offsets[1:] - 1

    class Fixed:
        def fit(self, pi: Any, mu: Any = None) -> Ratio:
            following = np.append(w[states][1:], 0.0)
            following[last] = w[mdp.states_of(logs.final_contexts)]
            return Ratio(
                weights=w[states], next_weights=following, raw_mean=1.0, raw_min=0.1, raw_max=2.0,
                share_negative=0.0, share_effective_actions=1.0,
            )  # fmt: skip

    proximal = Proximal(logs=logs, bonus=bonus, ratios=Fixed(), strength=2.0)
    paid = proximal.penalised(np.ones(len(logs)))
    plain, penalised = (k_step_advantages(logs, v, k=1, gamma=0.9).values for v in (bonus, paid))
    after = paid.following(logs) / -2.0  # log w of what follows
    np.testing.assert_allclose(penalised, plain - 2.0 * (0.9 * after - log_weights(w[states])))
    again = proximal.penalised(np.ones(len(logs)))  # a mean over rounds: the same ratio changes nothing
    np.testing.assert_allclose(again.rows, paid.rows)


def test_a_log_that_does_not_cover_the_policy_is_reported_once_with_numbers() -> None:
    mdp, mu, logs = world(0)
    strict = LinearRatio(gamma=0.9, features=INDICATORS, reference="behaviour", limits=Limits(weight=1.05))
    with pytest.warns(CoverageWarning, match=r"the largest weight is \d") as caught:
        learn(mdp, mu, logs, proximal=0.5, ratio=strict)
    assert sum(warning.category is CoverageWarning for warning in caught) == 1


@pytest.mark.parametrize("strength", [-1.0, np.nan, np.inf])
def test_bad_strengths(strength: float) -> None:
    with pytest.raises(ConfigError, match="a proximal of at least 0"):
        OfflineSHPI(proximal=strength)
