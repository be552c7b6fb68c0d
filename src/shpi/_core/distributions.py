"""Quantiles and tails of the normal, t, chi-square and binomial distributions; degrees of freedom.

They call the special functions behind `scipy.stats` directly, and so give the same bits. For single numbers
the checks of `scipy.stats` cost far more, and its import took half of the import time of `shpi.evaluate`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

LEAST_FREEDOM = 2.0  # lower bound on the degrees of freedom, however heavy the tails


normal_quantile: Any = special.ndtri  # the x with P(X <= x) = q
normal_cdf: Any = special.ndtr  # P(X <= x)
binomial_tail: Any = special.bdtrc  # (count, draws, chance): P(more than count successes in so many draws)


def normal_upper_quantile(q: Any) -> Any:
    """The x with P(X > x) = q."""
    return -special.ndtri(q)


def normal_tail(x: Any) -> Any:
    """P(X > x)."""
    return special.ndtr(-x)


def t_quantile(q: Any, freedom: Any) -> Any:
    """The x with P(X <= x) = q, for a t distribution with these degrees of freedom."""
    return special.stdtrit(freedom, q)


def t_tail(x: Any, freedom: Any) -> Any:
    """P(X > x), for a t distribution with these degrees of freedom."""
    return special.stdtr(freedom, -x)


def chi_square_quantile(q: Any, freedom: Any) -> Any:
    """The x with P(X <= x) = q, for a chi-square distribution with these degrees of freedom."""
    return 2 * special.gammaincinv(freedom / 2, q)


def chi_square_tail(x: Any, freedom: Any) -> Any:
    """P(X > x), for a chi-square distribution with these degrees of freedom."""
    return special.chdtrc(freedom, x)


def degrees_of_freedom(influence: NDArray[np.float64]) -> float:
    """Degrees of freedom of the standard deviation over U users: 2U/(kurtosis - 1), between 2 and U - 1."""
    users = len(influence)
    centred = influence - influence.mean()
    scale = float(np.abs(centred).max())
    if scale == 0:
        return float(users - 1)
    centred = centred / scale
    squares = centred * centred  # a power of 3 or 4 takes a hundred times as long
    variance = float(np.mean(squares))
    kurtosis = float(np.mean(squares * squares)) / variance**2
    return float(np.clip(2 * users / max(kurtosis - 1, 1e-12), min(LEAST_FREEDOM, users - 1), users - 1))
