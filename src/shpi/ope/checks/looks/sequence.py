r"""Bounds that hold at every look at a growing log at once: confidence sequences for a mean over users.

Who looks every day and ships at the first good look is wrong far more often than one time in twenty. A
confidence sequence holds for all numbers of users together, with probability 1 - alpha, so one may stop at
any time.

*Asymptotic* (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2024). With s the standard deviation of the
influences of U users, one-sided,

    lower(U) = estimate - s sqrt( 2 (U rho^2 + 1) / (U rho)^2  log(1 + sqrt(U rho^2 + 1) / (2 alpha)) )

It is tightest around ``planned`` users, which rho is made for, before any user is seen. It needs no bounds on
rewards or weights, and as many users as a central limit theorem does.

*Betting* (Waudby-Smith and Ramdas 2023). Start with one unit of money, and bet on every user i, in order of
entry, that the value y_i is above m: wealth *= 1 + l_i (y_i - m), with a stake l_i from the users before. If
the mean is at most m the wealth is a supermartingale and reaches 1/alpha with probability alpha at most,
whatever the distribution, as long as no user can lose all of it. The value is a user's lift by plain
importance weights, sum_t gamma^t (w_t - 1) r_t, cut off above (a lower bound only gets lower) and not below:
rewards are bounded below, so losses are. It is exact for any number of users, and long horizons make it weak.
"""

from __future__ import annotations

import math

import numpy as np

from shpi.protocols import Float64Array

PLANNED = 2_000  # users at which the bounds are tightest, if nobody says
_BOUNDS = 24  # halvings in the search for the bound
_CAP = 5.0  # values above so many times the largest loss are cut off


def tuned(planned: int, alpha: float) -> float:
    """The rho with which the sequence is tightest at about ``planned`` users."""
    log = -2 * math.log(alpha)
    return math.sqrt((log + math.log(log) + 1) / planned)


def asymptotic_width(users: int, deviation: float, alpha: float, planned: int = PLANNED) -> float:
    """How far the one-sided bound lies below the estimate."""
    rho = tuned(planned, alpha)
    spread = users * rho**2 + 1
    inside = 2 * spread / (users * rho) ** 2 * math.log(1 + math.sqrt(spread) / (2 * alpha))
    return deviation * math.sqrt(inside)


def asymptotic_lower(estimate: float, influence: Float64Array, alpha: float, planned: int = PLANNED) -> float:
    """The lower bound of the sequence at this number of users."""
    return estimate - asymptotic_width(len(influence), float(np.std(influence, ddof=1)), alpha, planned)


def wealth(values: Float64Array, mean: float, floor: float, alpha: float) -> float:
    """The largest wealth so far of a gambler who bets that the mean is above ``mean``.

    Args:
        values: in the order in which users came; none is below ``floor``.
        mean: under which the values must not be worth betting on.
        floor: the least that a value can be.
        alpha: the level that the stakes are made for.
    """
    largest_loss = mean - floor
    if largest_loss <= 0:
        return math.inf if len(values) and values.min() > mean else 1.0
    y = np.minimum(values, mean + _CAP * largest_loss) - mean
    before = np.arange(1, len(y) + 1)
    # Means and variances of the users before, with one imagined user; stakes grow with the evidence.
    sums = np.append(0.0, np.cumsum(y))[:-1]
    squares = np.append(0.0, np.cumsum(y**2))[:-1]
    centre = sums / before
    variance = np.maximum((squares + largest_loss**2) / before, 1e-12)
    stakes = np.clip(centre / (variance + centre**2), 0.0, 0.5 / largest_loss)
    money = np.cumsum(np.log1p(stakes * y))
    return float(np.exp(min(max(money.max(initial=0.0), 0.0), 700.0)))


def betting_lower(values: Float64Array, floor: float, alpha: float) -> float:
    """The largest mean that the gambler has refuted; ``floor`` if none."""
    low, high = floor, float(values.mean())
    if wealth(values, low, floor, alpha) < 1 / alpha and low >= high:
        return floor
    for _ in range(_BOUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if wealth(values, middle, floor, alpha) >= 1 / alpha else (low, middle)
    return low
