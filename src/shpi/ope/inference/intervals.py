r"""Intervals for a mean over users, from the users' influences. A user, not a decision, is one observation.

    normal       estimate ± z s/sqrt(U)                                             z: normal quantile
    t            estimate ± t_{U-1} s/sqrt(U)
    heavy        estimate ± t_nu s/sqrt(U),  nu = 2U/(kurtosis - 1) <= U - 1        for heavy tails
    skewed       t_{3 nu}, longer on the side where the skewness of the influences causes misses; at least as
                 long as with a quarter of one more user as extreme as the most extreme one, and as a Poisson
                 bound on the number of a few users far from all others
    bootstrap    users resampled; the distribution of (mean* - mean)/s*             studentised
    bernstein    estimate ± (s sqrt(2 L/U) + 7 R L/(3 (U-1))),  L = log(2/alpha)    Maurer and Pontil 2009

s is the standard deviation of the influences. The nu of "heavy" measures the precision of s itself: with
heavy tails a few users determine s, and U = 10,000 users may be worth five degrees of freedom. For normal
influences it is U. Self-normalised estimators have a floor under s (`shpi.ope.inference.steps`), which makes
s more precise than its kurtosis suggests: in simulations three times as many degrees of freedom were about
right ("skewed").

Skewness. If a few users lose much, a log that happens to contain few of them looks too good *and* too
certain: the errors of the estimate and of s are correlated, and lower bounds fail too often, upper ones too
rarely. With a = skewness of the influences / sqrt(U), Hall's (1992) transformation makes the pivot
T = (estimate - truth)/(s/sqrt(U)) symmetric,

    g(T) = T + a T^2/3 + a^2 T^3/27 + a/6,      g^-1(q) = (3/a) ((1 + a (q - a/6))^(1/3) - 1)

and g^-1(q) replaces the quantile q if it is longer. The interval is never made shorter: the users who would
have made it longer may be missing from the log. For the same reason a quarter of one more user is added to
each side, whose influence is the most extreme one x of that side:

    length = c x/(U + c) + q s_c/sqrt(U + c),   s_c^2 = the variance with that user,   c = 1/4

For 400 users with normal influences this is 2 % longer, for a million no longer. In the world "leaving" of
the coverage benchmark it raised the coverage of lower bounds by one point, for 1 to 2 % of length. (c = 1/2
raised it by two points, and made other intervals too long.)

Rare losses. If m users lie far below all others (more than 5 standard deviations of the rest), their number
is a Poisson count, and m = 2 is compatible with an expectation of 6.3. The normal approximation fails here,
however large U is. With s_m the root mean square distance of these m and lambda_m the Poisson upper limit,

    length^2 = (q s_rest/sqrt(U))^2 + (s_m (lambda_m - m)/U)^2,     the longest over m = 1, 2, 3, 5, ..., 34

For many such users this is the ordinary length; for a few it covers the uncertainty of their number. A loss
that no user shows cannot be seen in the log: a gate states which unseen loss would undo its verdict.

One-sided bounds use the one-sided quantile at the same level, two-sided intervals the two-sided one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shpi._core.distributions import LEAST_FREEDOM as LEAST_FREEDOM  # version 0.1 had it here
from shpi._core.distributions import chi_square_quantile, degrees_of_freedom, normal_quantile, t_quantile
from shpi.errors import ConfigError, DataError
from shpi.ope.results import Interval
from shpi.protocols import Float64Array

REPLICATES = 2_000  # bootstrap replicates
MAX_GROUPS = 10_000  # number of random groups into which more users than this are put before resampling
UNSEEN = 0.25  # c, in users: share of one more extreme user; tuned on seeds that no reported table uses
FAR = 5.0  # standard deviations of the rest; one in three million normal users lies so far away
RARE = (1, 2, 3, 5, 8, 13, 21, 34)  # the numbers m of far users to try
STEADY = 3.0  # ratio of degrees of freedom, "skewed" / "heavy"; tuned on seeds that no reported table uses


def standard_error(influence: Float64Array) -> float:
    """The standard deviation of the influences, divided by sqrt(users)."""
    return float(np.std(influence, ddof=1) / math.sqrt(len(influence)))


def interval_of(
    estimate: float,
    influence: Float64Array,
    *,
    level: float = 0.95,
    method: str = "t",
    seed: int = 0,
    value_range: float | None = None,
) -> Interval:
    """The two-sided interval and the one-sided lower bound at ``level``; see the top of this file.

    Args:
        estimate: estimate of the mean.
        influence: influence of every user [U], with mean 0.
        level: confidence level of the interval, and of the bound.
        method: ``skewed``, ``t``, ``heavy``, ``normal``, ``bootstrap`` or ``bernstein``.
        seed: random seed of the bootstrap.
        value_range: R of ``bernstein``, the largest possible difference between two users' pseudo-values;
            None: the largest difference in the log, which gives no guarantee.
    """
    if not 0.5 <= level < 1:
        raise ConfigError(expected="a level in [0.5, 1)", found=str(level))
    if len(influence) < 2:
        raise DataError(expected="at least two users", found=str(len(influence)), where="interval")
    if not (np.isfinite(influence).all() and math.isfinite(estimate)):
        raise DataError(
            expected="finite influences",
            found="NaN or infinity",
            where="interval",
            remedy="importance products overflow: normalise the weights (WDR, SNPDIS), or use KStepSHPI(k=4)",
        )
    makers: dict[str, Any] = {
        "normal": _symmetric,
        "t": _symmetric,
        "heavy": _symmetric,
        "skewed": _skewed,
        "bootstrap": _bootstrap,
        "bernstein": _bernstein,
    }
    if method not in makers:
        raise ConfigError(expected=f"a method among {sorted(makers)}", found=repr(method))
    error = standard_error(influence)
    if error == 0:
        return Interval(level=level, lower=estimate, upper=estimate, lower_bound=estimate, method=method)
    below, above, one_sided = makers[method](
        influence, error, 1 - level, method=method, seed=seed, value_range=value_range
    )
    return Interval(
        level=level,
        lower=estimate - below,
        upper=estimate + above,
        lower_bound=estimate - one_sided,
        method=method,
    )


def _symmetric(
    influence: Float64Array, error: float, alpha: float, *, method: str, **_: Any
) -> tuple[float, float, float]:
    if method == "normal":
        two_sided, one_sided = (float(normal_quantile(1 - a)) for a in (alpha / 2, alpha))
    else:
        freedom = len(influence) - 1 if method == "t" else degrees_of_freedom(influence)
        two_sided, one_sided = (float(t_quantile(1 - a, freedom)) for a in (alpha / 2, alpha))
    return two_sided * error, two_sided * error, one_sided * error


def _skewed(influence: Float64Array, error: float, alpha: float, **_: Any) -> tuple[float, float, float]:
    freedom = min(STEADY * degrees_of_freedom(influence), len(influence) - 1)
    lean = skewness(influence) / math.sqrt(len(influence))
    two_sided, one_sided = (float(t_quantile(1 - a, freedom)) for a in (alpha / 2, alpha))
    below, above, one = (
        max(
            error * max(quantile, side * unskewed(side * quantile, lean)),
            with_unseen(side * influence, quantile),
            with_rare(side * influence, quantile, share),
        )
        for side, quantile, share in (
            (1, two_sided, alpha / 2),
            (-1, two_sided, alpha / 2),
            (1, one_sided, alpha),
        )
    )
    return below, above, one


def with_rare(influence: Float64Array, quantile: float, alpha: float) -> float:
    """The distance of the lower end below the estimate, with the number of far users as a Poisson count."""
    users = len(influence)
    few = min(RARE[-1], users // 10)
    if few < 1:
        return 0.0
    low = np.sort(np.partition(influence, few)[: few + 1])
    total, squares = float(influence.sum()), float(np.sum(influence**2))
    longest = 0.0
    for m in (m for m in RARE if m <= few):
        size = users - m
        centre = (total - float(low[:m].sum())) / size
        rest = max((squares - float(np.sum(low[:m] ** 2))) / size - centre**2, 0.0)
        if centre - low[m - 1] <= FAR * math.sqrt(rest):
            continue
        away = math.sqrt(float(np.mean((centre - low[:m]) ** 2)))
        most = float(chi_square_quantile(1 - alpha, 2 * (m + 1))) / 2
        length = math.hypot(quantile * math.sqrt(rest / users), away * (most - m) / users)
        longest = max(longest, length)
    return longest


def with_unseen(influence: Float64Array, quantile: float) -> float:
    """The distance of the lower end below the estimate, with ``UNSEEN`` of one more, lowest user."""
    users = len(influence)
    low = float(influence.mean() - influence.min())
    shift = UNSEEN * low / (users + UNSEEN)
    variance = (users * float(np.var(influence)) + UNSEEN * low**2) / (users + UNSEEN) - shift**2
    return shift + quantile * math.sqrt(variance / (users + UNSEEN - 1))


def skewness(influence: Float64Array) -> float:
    """The third standardised moment; 0 if all influences are equal."""
    centred = influence - influence.mean()
    scale = float(np.abs(centred).max())
    if scale == 0:
        return 0.0
    centred = centred / scale
    squares = centred * centred
    return float(np.mean(squares * centred) / np.mean(squares) ** 1.5)


def unskewed(quantile: float, lean: float) -> float:
    """g^-1 of the quantile of a symmetric pivot; ``lean`` is skewness / sqrt(users)."""
    if abs(lean) < 1e-6:
        return quantile
    root = float(np.cbrt(1 + lean * (quantile - lean / 6)))
    return 3 / lean * (root - 1)


def _bootstrap(
    influence: Float64Array, error: float, alpha: float, *, seed: int, **_: Any
) -> tuple[float, float, float]:
    pivots = bootstrap_pivots(influence, seed=seed)
    low, high, one_sided = np.quantile(pivots, [alpha / 2, 1 - alpha / 2, 1 - alpha])
    # The pivot (mean* - mean)/s* approximates (estimate - truth)/s, so truth = estimate - pivot s.
    return float(high) * error, -float(low) * error, float(one_sided) * error


def bootstrap_pivots(influence: Float64Array, *, seed: int, replicates: int = REPLICATES) -> Float64Array:
    """(mean* - mean) / s* of resampled users [replicates], computed in blocks."""
    rng = np.random.default_rng(seed)
    x = influence - influence.mean()
    if (
        len(x) > MAX_GROUPS
    ):  # sums over random groups have the same variance, and with so many users hardly any tails
        x = np.bincount(rng.permutation(len(x)) % MAX_GROUPS, weights=x)
        x = x - x.mean()
    n, block = len(x), max(1, 20_000_000 // len(x))
    pivots = []
    for start in range(0, replicates, block):
        drawn = x[rng.integers(n, size=(min(block, replicates - start), n))]  # [b, n]
        spread = drawn.std(axis=1, ddof=1)
        mean = drawn.mean(axis=1)
        fine = spread > 0
        pivots.append(np.where(fine, math.sqrt(n) * mean / np.where(fine, spread, 1.0), 0.0))
    return np.concatenate(pivots)


def _bernstein(
    influence: Float64Array, error: float, alpha: float, *, value_range: float | None, **_: Any
) -> tuple[float, float, float]:
    users = len(influence)
    span = float(np.ptp(influence)) if value_range is None else value_range

    def width(share: float) -> float:
        log = math.log(2 / share)
        return error * math.sqrt(2 * log) + 7 * span * log / (3 * (users - 1))

    # Each side of a two-sided interval has alpha/2.
    return width(alpha / 2), width(alpha / 2), width(alpha)
