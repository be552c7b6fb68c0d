"""Importance ratios rho_t = pi(a_t|x_t) / mu(a_t|x_t) of the logged decisions."""

from __future__ import annotations

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import DataError
from shpi.protocols import Float64Array, Policy

_BLOCK = 50_000  # rows per call of the policy


def taken_probs(logs: LoggedData, policy: Policy) -> Float64Array:
    """pi(a_t|x_t) of the logged actions [n], given the log's candidates; in blocks."""
    probs = np.empty(len(logs))
    for first in range(0, len(logs), _BLOCK):
        rows = slice(first, first + _BLOCK)
        mask = None if logs.candidates is None else logs.candidates[rows]
        table = policy.action_probs(logs.contexts[rows], mask)  # [b, A]
        probs[rows] = table[np.arange(len(table)), logs.actions[rows]]
    return probs


def importance_ratios(logs: LoggedData, policy: Policy) -> Float64Array:
    """rho_t [n]; 0 where the policy never takes the logged action."""
    return ratios_of(logs, taken_probs(logs, policy))


def ratios_of(logs: LoggedData, probs: Float64Array) -> Float64Array:
    """rho_t [n] from given pi(a_t|x_t) [n]."""
    if logs.propensities is None:
        raise DataError(
            expected="a log with propensities mu(a|x)",
            found="none",
            remedy="log the probability of each action, or estimate it: logs.with_estimated_propensities()",
        )
    ratios: Float64Array = np.asarray(probs, dtype=np.float64) / logs.propensities
    return ratios
