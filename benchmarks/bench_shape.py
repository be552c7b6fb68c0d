"""What lines and curves explain in the best states of a log, and what their policies are worth.

The rule of `shpi.learners.shape` on logs of seeds 100 and 101, 1,000 users. The policies are OfflineSHPI's
with f linear, and with f linear and Fourier, tried on 300 new users; those of the chosen round, in which
f still matters (`shpi.learners.sharper` may prefer mu's favourite action to both).
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.report import Row
from benchmarks.trial import Trial
from shpi.advantages import StateValues
from shpi.features import ChainMap
from shpi.learners import BehaviourCloning, OfflineSHPI
from shpi.learners.shape import PROBE, choose_shape, curved_recipes, linear_features
from shpi.oracles import Ridge
from shpi.values import WithPast

LOGS = (("hiv", 1.0), ("hiv", 0.3), ("synthetic", 1.0), ("synthetic", 0.3))
SEEDS, USERS, NEW_USERS, GAMMA = (100, 101), 1000, 300, 0.99


def run() -> list[Row]:
    return [row for world, epsilon in LOGS for seed in SEEDS for row in compared(world, epsilon, seed)]


def compared(world: str, epsilon: float, seed: int) -> Iterator[Row]:
    """The choice, and the mean returns of mu and of the policies with lines and with curves."""
    trial = Trial.of(world, epsilon, USERS, seed)
    logs = trial.logs
    bonus = StateValues.of(WithPast().fit(logs, gamma=GAMMA, seed=seed), logs)
    learner = OfflineSHPI(k=PROBE, progress=False, seed=seed)
    assert logs.propensities is not None
    under_mu = learner._advantages(logs, bonus, logs.propensities)
    clone = BehaviourCloning(seed=seed).fit(logs)
    chosen = choose_shape(logs, bonus, under_mu, clone, seed=seed)
    label = f"{world}, epsilon {epsilon:g}, seed {seed}"
    yield Row(f"{label}: curves chosen", float(not isinstance(chosen.features, ChainMap)), "0 or 1")
    oracles = {"lines": linear_features(logs), "curves": Ridge(features=curved_recipes(seed)[0])}
    policies = {}
    for name, oracle in oracles.items():
        fitted = OfflineSHPI(oracle=oracle, progress=False, seed=seed).fit(logs)
        policies[name] = fitted.history[fitted.chosen - 1].policy if fitted.chosen else fitted
    for name, policy in {"mu": trial.mu, **policies}.items():
        yield Row(f"{label}: {name}", trial.tried(policy, NEW_USERS), "return")
