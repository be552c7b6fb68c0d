"""Finite worlds in which half of the users are cut: a log that stops and a user who leaves count alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shpi
from shpi.features import Identity
from shpi.ope import FQE
from shpi.testing.tabular import TabularMDP, random_mdp
from tests.values.test_endings import GAMMA, MU, cut, shop

HORIZON = 7
TABLE = FQE(features=Identity(intercept=False))  # contexts are one-hot
CONSISTENT = {"WDR", "DR", "SNPDIS", "PDIS", "SNIPS", "IPS", "FQE", "SHPI(k=4)"}


class OneHot:
    """A table [S, A] over contexts that are indicators of the state."""

    width = None

    def __init__(self, table: Any) -> None:
        self.table, self.n_actions = table, table.shape[1]

    def action_probs(self, contexts: Any, candidates: Any = None) -> Any:
        return np.asarray(contexts, dtype=np.float64) @ self.table


def true_value(world: TabularMDP, policy: Any) -> float:
    """What a user brings in the first decisions."""
    alive, total = world.initial * ~world.terminal, 0.0
    for step in range(HORIZON):
        total += GAMMA**step * float(alive @ (policy * world.reward).sum(axis=1))
        alive = np.einsum("s,sa,sat->t", alive, policy, world.transition) * ~world.terminal
    return total


def case(name: str) -> tuple[TabularMDP, Any, Any, float]:
    """A world, mu, pi, and the hazard of being cut."""
    if name == "shop":
        return shop(), MU, np.array([[0.1, 0.9], [0.5, 0.5]]), 1.0
    world = random_mdp(6, 3, seed=3, gamma=GAMMA)
    mu = world.random_policy(seed=4)
    return world, mu, 0.5 * mu + 0.5 * world.random_policy(seed=9), 0.3


@pytest.mark.parametrize("name", ["shop", "random"])
def test_estimates_are_those_of_the_whole_log(name: str) -> None:
    world, mu, pi, hazard = case(name)
    logs = cut(world.log(mu, 6000, 60, seed=11, ragged=False), hazard=hazard, seed=11)
    settings = {"horizon": HORIZON, "gamma": GAMMA, "details": False}
    report = shpi.evaluate(OneHot(pi), logs, truncated="censored", **settings)
    estimates = {estimate.name: estimate for estimate in report.estimates}
    assert set(estimates) >= CONSISTENT
    for estimator in CONSISTENT:
        estimate = estimates[estimator]
        assert abs(estimate.value - true_value(world, pi)) < 4 * estimate.value_error, estimate
        assert abs(estimate.baseline - true_value(world, mu)) < 4 * estimate.value_error, estimate
    low = shpi.evaluate(OneHot(pi), logs, truncated="complete", estimators=[TABLE], **settings)["FQE"]
    assert low.value < true_value(world, pi) - 4 * low.value_error  # what the test would see
