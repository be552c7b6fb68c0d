r"""Compares two arms at any number of looks: a confidence sequence for the difference of means per user.

Users arrive one by one, each with one number, the reward in a window after entering. With arms of
n_1 and n_0 users, variances s^2 and difference D of the means,

    v = s_1^2 / n_1 + s_0^2 / n_0,      n = n_1 n_0 / (n_1 + n_0),      D ± width(n, sqrt(v n), alpha)

where ``width`` is that of `shpi.ope.checks.looks.sequence`: it holds at all looks together. While a canary
grows from 1 to 20 % the mix of days differs between the arms, so each stage is a *stratum* with its own
difference; the differences are averaged with weights 1/v.

With few users and rare, large rewards, the sample variance is too small. So each arm's variance is at least
the pooled variance, one pseudo-user of ten times the pooled variance is added, and there is no result before
both arms have `FEWEST` users. `python -m benchmarks serve_looks` measures the error rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from shpi.ope.checks.looks.sequence import asymptotic_width

FEWEST = 30  # users that each arm needs before there is a result
_PSEUDO = 10.0  # variance of the pseudo-user, in pooled variances


@dataclass(slots=True)
class Sums:
    """Running count, mean and sum of squared deviations over users (Welford)."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """Add the value of one user."""
        self.n += 1
        before = value - self.mean
        self.mean += before / self.n
        self.squares += before * (value - self.mean)

    @property
    def variance(self) -> float:
        """The sample variance over users."""
        return self.squares / (self.n - 1) if self.n > 1 else math.nan


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The mean reward per user of one arm minus that of another."""

    estimate: float
    lower: float  # each bound holds at all looks together with probability 1 - alpha
    upper: float
    users: int  # in the first arm
    others: int  # in the second

    @property
    def worse(self) -> bool:
        """Whether the first arm is proven worse."""
        return self.upper < 0

    @property
    def better(self) -> bool:
        """Whether the first arm is proven better."""
        return self.lower > 0


def difference(strata: Iterable[tuple[Sums, Sums]], *, alpha: float, planned: int) -> Difference | None:
    """The difference of two arms over all strata; None while there are too few users.

    Args:
        strata: first and second arm of each stratum.
        alpha: error probability of each bound, over all looks together.
        planned: number of users at which the bounds are tightest, fixed before the first look.
    """
    information = weighted = size = 0.0
    users = others = 0
    for first, second in strata:
        if first.n < 2 or second.n < 2:
            continue
        users, others = users + first.n, others + second.n
        error = _error(first, second)
        if error <= 0:
            continue  # all values are equal so far: nothing can be estimated
        information += 1 / error
        weighted += (first.mean - second.mean) / error
        size += first.n * second.n / (first.n + second.n)
    if users < FEWEST or others < FEWEST or information == 0:
        return None
    estimate, spread = weighted / information, math.sqrt(size / information)
    width = asymptotic_width(max(round(size), 1), spread, alpha, planned)
    return Difference(
        estimate=estimate, lower=estimate - width, upper=estimate + width, users=users, others=others
    )


def _error(first: Sums, second: Sums) -> float:
    """The squared standard error of the difference, conservative with few users."""
    together = (first.squares + second.squares) / (first.n + second.n - 2)
    return sum(
        (max(arm.variance, together) * (arm.n - 1) + _PSEUDO * together) / (arm.n - 1) / arm.n
        for arm in (first, second)
    )
