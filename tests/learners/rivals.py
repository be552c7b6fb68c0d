"""What the tests of the neural rivals share: finite worlds, and how close a policy comes to the best."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from shpi.data.logged import LoggedData
from shpi.policies import Policy
from shpi.testing.tabular import TabularMDP, random_mdp


def world(seed: int, **options: object) -> TabularMDP:
    return random_mdp(6, 3, seed, **{"gamma": 0.9, "noise": 0.3, **options})  # type: ignore[arg-type]


def covering_log(mdp: TabularMDP, n: int, seed: int, *, horizon: int = 20) -> LoggedData:
    """Every allowed action with the same probability, and every kind of ending."""
    return mdp.log(mdp.random_policy(0, concentration=1e9), n, horizon, seed)


@cache
def masked_world_and_log() -> tuple[TabularMDP, LoggedData]:
    """30,000 decisions of an uneven mu in a world with masks and an end; nobody changes them."""
    mdp = world(1, n_terminal=1, masked=True)
    return mdp, mdp.log(mdp.random_policy(2, concentration=5.0), 1_500, 20, 3)


def table(mdp: TabularMDP, policy: Policy) -> np.ndarray:
    return policy.action_probs(mdp.contexts(np.arange(mdp.n_states)), mdp.allowed)


def shortfall(mdp: TabularMDP, policy: Policy) -> float:
    """The share of the way from uniform to the dynamic-programming optimum that is missing."""
    best, _ = mdp.optimal()
    uniform = mdp.value(mdp.random_policy(0, concentration=1e9))
    attained = mdp.value(table(mdp, policy))
    return float(mdp.initial @ (best - attained) / (mdp.initial @ (best - uniform)))


def one_step_shortfall(mdp: TabularMDP, policy: Policy, logs: LoggedData) -> float:
    """The share of the way from uniform to the best immediate reward, in the states of the log."""
    share = np.bincount(mdp.states_of(logs.contexts), minlength=mdp.n_states) / len(logs)
    allowed = np.ones(mdp.reward.shape, bool) if mdp.allowed is None else mdp.allowed
    best = share @ np.where(allowed, mdp.reward, -np.inf).max(axis=1)
    uniform = share @ (mdp.reward * allowed / allowed.sum(axis=1, keepdims=True)).sum(axis=1)
    attained = share @ (table(mdp, policy) * mdp.reward).sum(axis=1)
    return float((best - attained) / (best - uniform))


def without(logs: LoggedData, *names: str) -> LoggedData:
    changes: dict[str, object] = dict.fromkeys(names)
    if "propensities" in names:
        changes |= {"propensity_mode": "absent", "behaviour": None}
    return replace(logs, **changes)  # type: ignore[arg-type]


def with_empty_candidates(logs: LoggedData, row: int) -> LoggedData:
    assert logs.candidates is not None
    mask = logs.candidates.copy()
    mask[row] = False
    return replace(logs, candidates=mask)
