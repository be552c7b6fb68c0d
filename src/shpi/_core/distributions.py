"""Quantiles and tails of the normal, t, chi-square and binomial distributions.

The special functions that `scipy.stats` calls for them, so the same bits. Its checks of shapes take much
longer than one number does, and half of the import of `shpi.evaluate` was its import.
"""

from __future__ import annotations

from typing import Any

from scipy import special


def normal_quantile(q: Any) -> Any:
    """X with P(X <= x) = q."""
    return special.ndtri(q)


def normal_upper_quantile(q: Any) -> Any:
    """X with P(X > x) = q."""
    return -special.ndtri(q)


def normal_cdf(x: Any) -> Any:
    """P(X <= x)."""
    return special.ndtr(x)


def normal_tail(x: Any) -> Any:
    """P(X > x)."""
    return special.ndtr(-x)


def t_quantile(q: Any, freedom: Any) -> Any:
    """X with P(X <= x) = q, for a t distribution with these degrees of freedom."""
    return special.stdtrit(freedom, q)


def t_tail(x: Any, freedom: Any) -> Any:
    """P(X > x), for a t distribution with these degrees of freedom."""
    return special.stdtr(freedom, -x)


def chi_square_quantile(q: Any, freedom: Any) -> Any:
    """X with P(X <= x) = q, for a chi-square distribution with these degrees of freedom."""
    return 2 * special.gammaincinv(freedom / 2, q)


def chi_square_tail(x: Any, freedom: Any) -> Any:
    """P(X > x), for a chi-square distribution with these degrees of freedom."""
    return special.chdtrc(freedom, x)


def binomial_tail(count: Any, draws: Any, chance: Any) -> Any:
    """P(X > count) for the number of successes in so many draws."""
    return special.bdtrc(count, draws, chance)
