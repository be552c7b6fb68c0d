"""Exact values and policies of a finite decision process that terminates; nothing is sampled here.

    P [S, A, S'] transition probabilities, R [S, A] expected rewards, pi [S, A] a policy, gamma = 1
    V_pi            = sum_a pi(a|s) (R + P V_pi)
    Q_k(s, a)       = R(s, a) + sum_s' P(s'|s, a) U_{k-1}(s')        k steps, then the bonus
    U_0 = bonus,    U_m(s) = sum_a pi(a|s) (R(s, a) + sum_s' P(s'|s, a) U_{m-1}(s'))

With bonus V_mu, Q_k - V_mu is the k-step advantage of the paper with exact weights. Rows of P may sum to less
than 1: the rest is the probability of leaving the process, with value 0.
"""

from __future__ import annotations

import numpy as np

from shpi.errors import ConfigError
from shpi.protocols import Float64Array, IntArray

_TIE = 1e-12  # values closer than this are equal: the action with the lower number wins


def check_table(table: Float64Array, n_states: int, n_actions: int) -> Float64Array:
    """Check that the rows of a policy table [S, A] are distributions, and return it."""
    given = np.asarray(table, dtype=np.float64)
    if given.shape != (n_states, n_actions):
        raise ConfigError(
            expected=f"a policy table of shape {(n_states, n_actions)}", found=f"shape {given.shape}"
        )
    bad = ~((given >= 0).all(axis=1) & (np.abs(given.sum(axis=1) - 1) < 1e-9))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ConfigError(
            expected="non-negative rows that sum to 1", found=str(given[row]), where=f"state {row}"
        )
    return given


def deterministic(actions: IntArray, n_actions: int) -> Float64Array:
    """The table [S, A] of a policy that takes actions[s] in state s."""
    return np.eye(n_actions)[actions]


def evaluate(transition: Float64Array, reward: Float64Array, table: Float64Array) -> Float64Array:
    """V_pi, [S], by solving (I - P_pi) V = R_pi."""
    moves = np.einsum("sa,sat->st", table, transition)
    value: Float64Array = np.linalg.solve(np.eye(len(moves)) - moves, (table * reward).sum(axis=1))
    return value


def visits(transition: Float64Array, table: Float64Array, start: Float64Array) -> Float64Array:
    """The expected number of visits to each state, [S]."""
    moves = np.einsum("sa,sat->st", table, transition)
    count: Float64Array = np.linalg.solve(np.eye(len(moves)) - moves.T, start)
    return count


def greedy(values: Float64Array) -> Float64Array:
    """The table of argmax_a values[s, a]; the lowest action wins a tie."""
    best = (values >= values.max(axis=1, keepdims=True) - _TIE).argmax(axis=1)
    return deterministic(best, values.shape[1])


def lookahead(
    transition: Float64Array, reward: Float64Array, table: Float64Array, bonus: Float64Array, k: int
) -> Float64Array:
    """Q_k, [S, A]: one action, then k - 1 steps of the policy, then the bonus."""
    ahead = bonus
    for _ in range(k - 1):
        ahead = (table * (reward + transition @ ahead)).sum(axis=1)
    values: Float64Array = reward + transition @ ahead
    return values


def improve(
    transition: Float64Array,
    reward: Float64Array,
    table: Float64Array,
    bonus: Float64Array,
    k: int,
    iterations: int = 100,
) -> Float64Array:
    """Repeat pi <- argmax_a Q_k(s, a), from ``table`` on, until the policy stays the same."""
    for _ in range(iterations):
        better = greedy(lookahead(transition, reward, table, bonus, k))
        if np.array_equal(better, table):
            return table
        table = better
    raise ConfigError(expected="a fixed point of the policy", found=f"none after {iterations} iterations")


def optimal(transition: Float64Array, reward: Float64Array) -> Float64Array:
    """The table of an optimal policy, by policy iteration with exact values."""
    n_states, n_actions = reward.shape
    table = np.full((n_states, n_actions), 1.0 / n_actions)
    while True:
        better = greedy(reward + transition @ evaluate(transition, reward, table))
        if np.array_equal(better, table):
            return table
        table = better
