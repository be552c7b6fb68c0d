r"""Confidence sequences for a mean over users: bounds that hold at all looks at a growing log together.

Looking every day and shipping at the first good look is wrong far more often than one time in twenty. A
confidence sequence holds for all numbers of users at once, with probability 1 - alpha, so one may stop at
any time.

*Asymptotic* (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2024). With s the standard deviation of the
influences of U users, one-sided,

    lower(U) = estimate - s sqrt( 2 (U rho^2 + 1) / (U rho)^2  log(1 + sqrt(U rho^2 + 1) / (2 alpha)) )

It is tightest around ``planned`` users; this number sets rho and must be chosen before any user is seen. The
bound needs no limits on rewards or weights, but enough users for a central limit theorem.

*Betting* (Waudby-Smith and Ramdas 2023). Start with one unit of money, and bet on every user i, in order of
entry, that the value y_i is above m: wealth *= 1 + l_i (y_i - m), where the stake l_i depends on earlier
users only. If the mean is at most m, the wealth is a supermartingale and reaches 1/alpha with probability
alpha at most, for any distribution, as long as no user can lose all of it. The value y_i is a user's lift by
plain importance weights, sum_t gamma^t (w_t - 1) r_t, clipped from above (which only lowers a lower bound)
but not from below: rewards are bounded below, so losses are. The bound is exact for any number of users, but
weak for long horizons.
"""

from __future__ import annotations

import math

import numpy as np

from shpi.protocols import Float64Array

PLANNED = 2_000  # number of users at which the bounds are tightest, by default
_BOUNDS = 24  # bisection steps in the search for the bound
_CAP = 5.0  # gains are clipped at this multiple of the largest loss


def tuned(planned: int, alpha: float) -> float:
    """The rho with which the sequence is tightest at about ``planned`` users."""
    log = -2 * math.log(alpha)
    return math.sqrt((log + math.log(log) + 1) / planned)


def asymptotic_width(users: int, deviation: float, alpha: float, planned: int = PLANNED) -> float:
    """The distance of the one-sided bound below the estimate."""
    rho = tuned(planned, alpha)
    spread = users * rho**2 + 1
    inside = 2 * spread / (users * rho) ** 2 * math.log(1 + math.sqrt(spread) / (2 * alpha))
    return deviation * math.sqrt(inside)


def asymptotic_lower(estimate: float, influence: Float64Array, alpha: float, planned: int = PLANNED) -> float:
    """The lower bound of the sequence at this number of users."""
    return estimate - asymptotic_width(len(influence), float(np.std(influence, ddof=1)), alpha, planned)


def wealth(values: Float64Array, mean: float, floor: float, alpha: float) -> float:
    """The largest wealth so far of a gambler who bets that the mean of the values is above ``mean``.

    Args:
        values: per-user values in order of entry; none is below ``floor``.
        mean: hypothesised mean that the gambler bets against.
        floor: smallest possible value.
        alpha: level of the bound; the stakes do not use it.
    """
    largest_loss = mean - floor
    if largest_loss <= 0:
        return math.inf if len(values) and values.min() > mean else 1.0
    y = np.minimum(values, mean + _CAP * largest_loss) - mean
    before = np.arange(1, len(y) + 1)
    # Means and variances over earlier users and one imaginary user; stakes grow with the evidence.
    sums = np.append(0.0, np.cumsum(y))[:-1]
    squares = np.append(0.0, np.cumsum(y**2))[:-1]
    centre = sums / before
    variance = np.maximum((squares + largest_loss**2) / before, 1e-12)
    stakes = np.clip(centre / (variance + centre**2), 0.0, 0.5 / largest_loss)
    money = np.cumsum(np.log1p(stakes * y))
    return float(np.exp(min(max(money.max(initial=0.0), 0.0), 700.0)))


def betting_lower(values: Float64Array, floor: float, alpha: float) -> float:
    """The lower bound: the largest mean that the gambler has refuted; ``floor`` if there is none."""
    low, high = floor, float(values.mean())
    if wealth(values, low, floor, alpha) < 1 / alpha and low >= high:
        return floor
    for _ in range(_BOUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if wealth(values, middle, floor, alpha) >= 1 / alpha else (low, middle)
    return low
