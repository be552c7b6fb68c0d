r"""How much better than mu a policy is on held-out users, one step of deviation at a time.

    gain = E_{x ~ d_mu} E_{a ~ pi} [ A_k(x, a) ]  -  E_{x ~ d_mu} E_{a ~ mu} [ A_k(x, a) ]

the first term of Theorem 1, under the states of the log. The first expectation is self-normalised by the
weights rho = pi/mu; the standard error is that of the linearised ratio, with users as clusters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from shpi.advantages import Advantages, ratios_of
from shpi.data.logged import LoggedData
from shpi.protocols import Float64Array


@dataclass(frozen=True, kw_only=True)
class Gain:
    """A held-out estimate with its one-sided lower bound."""

    estimate: float
    lower: float
    standard_error: float
    effective_decisions: float  # (sum rho)^2 / sum rho^2
    users: int


def held_out_gain(logs: LoggedData, advantages: Advantages, probs: Float64Array, confidence: float) -> Gain:
    """Estimate the gain of the policy whose pi(a_t|x_t) on the log is ``probs`` [n]."""
    rho = np.where(advantages.valid, ratios_of(logs, probs), 0.0)
    estimate, parts = gain_parts(logs, advantages, rho)
    users, error = logs.n_users, clustered_error(parts)
    quantile = float(stats.t.ppf(confidence, max(users - 1, 1)))
    square = float(np.sum(rho**2))
    return Gain(
        estimate=estimate,
        lower=estimate - quantile * error if square > 0 else -np.inf,
        standard_error=error,
        effective_decisions=float(rho.sum() ** 2 / square) if square > 0 else 0.0,
        users=users,
    )


def gain_parts(logs: LoggedData, advantages: Advantages, rho: Float64Array) -> tuple[float, Float64Array]:
    """The gain for the ratios rho = pi/mu [n], and each user's part of its linearised error [users]."""
    target, t_parts = _ratio(logs, rho, advantages.values)
    base, b_parts = _ratio(logs, advantages.valid.astype(np.float64), advantages.values)
    return target - base, t_parts - b_parts


def clustered_error(parts: Float64Array) -> float:
    """The standard error from the users' parts [users]."""
    users = len(parts)
    return float(np.sqrt(users / max(users - 1, 1) * np.sum(parts**2)))


def _ratio(logs: LoggedData, weights: Float64Array, values: Float64Array) -> tuple[float, Float64Array]:
    """The weighted mean, and each user's part of its linearised error [users]."""
    total = float(weights.sum())
    if total <= 0:
        return 0.0, np.zeros(logs.n_users)
    mean = float(weights @ values) / total
    user = logs.user_of_row
    parts = np.bincount(user, weights=weights * (values - mean), minlength=logs.n_users) / total
    return mean, parts
