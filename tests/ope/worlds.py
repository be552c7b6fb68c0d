"""Small worlds and slow, obvious formulas that the estimators are held against."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from shpi.data.logged import LoggedData
from shpi.features import Identity
from shpi.testing.tabular import TabularMDP, random_mdp

H = 5
EXACT = {"features": Identity(intercept=False), "ridge": 1e-7}  # one-hot contexts: a table


def small_world(**options: object) -> tuple[TabularMDP, np.ndarray, np.ndarray]:
    """Five states of which one is terminal, three actions; mu and a policy that differs from it."""
    settings = {"n_terminal": 1, "noise": 0.3, "gamma": 0.9} | options
    mdp = random_mdp(5, 3, seed=4, **settings)  # type: ignore[arg-type]
    mu = mdp.random_policy(1, concentration=4.0)
    return mdp, mu, 0.5 * mu + 0.5 * mdp.random_policy(2, concentration=1.0)


def value(mdp: TabularMDP, pi: np.ndarray, horizon: int = H) -> float:
    return float(mdp.initial @ mdp.values_by_time(pi, horizon)[0])


def advantage(mdp: TabularMDP, mu: np.ndarray, t: int, horizon: int = H) -> np.ndarray:
    """A^mu_t [S, A] with horizon - t decisions to go."""
    values, live = mdp.values_by_time(mu, horizon), ~mdp.terminal
    ahead = mdp.reward + mdp.gamma * mdp.transition @ (values[t + 1] * live)
    return np.asarray((ahead - values[t][:, None]) * live[:, None])


def sliding_lift(mdp: TabularMDP, pi: np.ndarray, mu: np.ndarray, k: int, horizon: int = H) -> float:
    """sum_t gamma^t E[A^mu(x_t, pi)], where pi decides from step t-k+1 on and mu before."""
    return sum(mdp.gamma**t * late_gain(mdp, pi, mu, t, max(0, t - k + 1), horizon) for t in range(horizon))


def session_lift(mdp: TabularMDP, pi: np.ndarray, mu: np.ndarray, end: float, horizon: int = H) -> float:
    """The same where pi decides from the start of the session on; sessions end with probability ``end``."""
    total = 0.0
    for t in range(horizon):
        for s in range(t + 1):
            started = (1.0 if s == 0 else end) * (1 - end) ** (t - s)
            total += mdp.gamma**t * started * late_gain(mdp, pi, mu, t, s, horizon)
    return total


def late_gain(mdp: TabularMDP, pi: np.ndarray, mu: np.ndarray, t: int, start: int, horizon: int = H) -> float:
    live = ~mdp.terminal
    steps = np.einsum("sa,sat->st", pi, mdp.transition) * live[:, None]
    reached = mdp.state_probs(mu, horizon)[start] * live
    for _ in range(start, t):
        reached = (reached @ steps) * live
    return float(np.sum(reached[:, None] * pi * advantage(mdp, mu, t, horizon)))


def every_path(mdp: TabularMDP, mu: np.ndarray, horizon: int) -> tuple[LoggedData, np.ndarray]:
    """A log in which every possible path occurs once, and the paths' probabilities under mu."""
    paths = list(_paths(mdp, mu, horizon))
    rows = [step for path, _, _ in paths for step in path]
    states, actions = np.array([s for s, _ in rows]), np.array([a for _, a in rows])
    logs = LoggedData.from_arrays(
        contexts=mdp.contexts(states),
        actions=actions,
        rewards=mdp.reward[states, actions],
        propensities=mu[states, actions],
        behaviour=mu[states],
        offsets=np.append(0, np.cumsum([len(path) for path, _, _ in paths])),
        terminated=np.array([bool(mdp.terminal[last]) for _, last, _ in paths]),
        final_contexts=mdp.contexts(np.array([last for _, last, _ in paths])),
        n_actions=mdp.n_actions,
    )
    return logs, np.array([p for _, _, p in paths])


def _paths(
    mdp: TabularMDP, mu: np.ndarray, horizon: int
) -> Iterator[tuple[list[tuple[int, int]], int, float]]:
    def extend(path: list[tuple[int, int]], state: int, p: float) -> Iterator[object]:
        if p == 0:
            return
        if len(path) == horizon or mdp.terminal[state]:
            yield path, state, p
            return
        for a, following in itertools.product(range(mdp.n_actions), range(mdp.n_states)):
            step = p * mu[state, a] * mdp.transition[state, a, following]
            yield from extend([*path, (state, a)], following, step)

    for first in range(mdp.n_states):
        yield from extend([], first, float(mdp.initial[first]))  # type: ignore[misc]


def brute_force(
    logs: LoggedData,
    ratios: np.ndarray,
    gamma: float,
    horizon: int,
    *,
    k: int | None = None,
    whole: bool = False,
) -> tuple[float, float]:
    """PDIS (or IPS) and its self-normalised form, one trajectory and one step at a time, nobody censored."""
    assert logs.rewards is not None
    top, weight, at_risk = np.zeros(horizon), np.zeros(horizon), np.zeros(horizon)
    for i, (start, stop) in enumerate(itertools.pairwise(logs.offsets)):
        rewards, rho, length = logs.rewards[start:stop], ratios[start:stop], stop - start
        for t in range(horizon):
            if t >= length and not logs.terminated[i]:
                continue
            first = 0 if k is None else max(0, t - k + 1)
            w = np.prod(rho) if whole else np.prod(rho[first : min(t + 1, length)])
            top[t] += w * (rewards[t] if t < length else 0.0)
            weight[t] += w
            at_risk[t] += 1
    discounts = gamma ** np.arange(horizon)
    return float(discounts @ (top / at_risk)), float(discounts @ (top / weight))
