r"""Two arms compared at every look: a confidence sequence for the difference of their means per user.

Users come one after the other, each with one number, the reward in a window after entering. With arms of
n_1 and n_0 users, variances s^2 and difference D of the means,

    v = s_1^2 / n_1 + s_0^2 / n_0,      n = n_1 n_0 / (n_1 + n_0),      D ± width(n, sqrt(v n), alpha)

where ``width`` is that of `shpi.ope.checks.looks.sequence`: it holds at all looks
together. While a canary grows from 1 to 20 % the mix of days differs between the arms, so each stage is a
*stratum* with its own difference; they are added by their information 1/v.

A variance of few users is too small exactly where it matters, for rare and large rewards. So each arm's
variance is at least that of both arms together, one pseudo-user of ten times the pooled variance is added,
and nothing is said before `FEWEST` users are in both arms. `python -m benchmarks serve_looks` has the rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from shpi.ope.checks.looks.sequence import asymptotic_width

FEWEST = 30  # users in each arm before anything is said
_PSEUDO = 10.0  # times the pooled variance, of one imagined user


@dataclass(slots=True)
class Sums:
    """Count, mean and squares of some users (Welford)."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """One more user."""
        self.n += 1
        before = value - self.mean
        self.mean += before / self.n
        self.squares += before * (value - self.mean)

    @property
    def variance(self) -> float:
        """Of one user."""
        return self.squares / (self.n - 1) if self.n > 1 else math.nan


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One arm minus another, per user."""

    estimate: float
    lower: float  # both bounds hold at all looks, each at 1 - alpha
    upper: float
    users: int  # in the first arm
    others: int  # in the second

    @property
    def worse(self) -> bool:
        """The first arm is proven to be worse."""
        return self.upper < 0

    @property
    def better(self) -> bool:
        """The first arm is proven to be better."""
        return self.lower > 0


def difference(strata: Iterable[tuple[Sums, Sums]], *, alpha: float, planned: int) -> Difference | None:
    """The difference of two arms over all strata; None while there are too few users.

    Args:
        strata: first and second arm of each.
        alpha: of each bound, over all looks together.
        planned: users at which the bounds are tightest, fixed before the first look.
    """
    information = weighted = size = 0.0
    users = others = 0
    for first, second in strata:
        if first.n < 2 or second.n < 2:
            continue
        users, others = users + first.n, others + second.n
        error = _error(first, second)
        if error <= 0:
            continue  # nobody was rewarded yet: nothing is known
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
    """The squared standard error of the difference, on the safe side with few users."""
    together = (first.squares + second.squares) / (first.n + second.n - 2)
    return sum(
        (max(arm.variance, together) * (arm.n - 1) + _PSEUDO * together) / (arm.n - 1) / arm.n
        for arm in (first, second)
    )
