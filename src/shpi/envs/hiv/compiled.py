"""The integrator of `hiv.taylor`, compiled by numba: the same series, tail and step-size rule.

Up to ``_L`` patients are integrated together, one per lane, each at its own time and with its own step; one
that is finished makes room for the next. The compiler turns each loop over lanes into SIMD instructions.
Without `fastmath` these round like scalar ones, so a patient's result does not depend on lane or neighbours.

Tables are flat: row c of lane l stands at ``c * _L + l``, with ``_L`` known to the compiler. Rows of a
coefficient and rows of the rates are those of `hiv.taylor`.

Compiling takes a few seconds and happens once: numba keeps the machine code beside this file or, where that
is read-only, in the user's cache folder. If neither can be used, every process compiles anew. Constants of
`hiv.taylor` are passed to the kernel as arguments (``_SCHEME``): numba would not notice if they changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np

from shpi.envs.hiv import taylor as hiv_taylor
from shpi.envs.hiv.ode import Patient
from shpi.errors import ConfigError, MissingExtraError
from shpi.protocols import Float64Array, Int64Array

try:
    import numba
except ImportError as error:
    raise MissingExtraError("numba", "fast") from error

_L = 16  # lanes: their coefficients fit into the L1 cache, and a single patient wastes little
_T1, _T2, _N1, _N2, _V, _E, _W, _I, _U = (row * _L for row in range(9))  # N1, N2 for T1*, T2*
_RATES = 20  # parameters of the equation, per patient
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}
_Function = TypeVar("_Function", bound=Callable[..., Any])


# p, REACH, LEAST, TINY, the weights of the six unknowns, numerator and denominator of the tail
_Scheme = tuple[int, float, float, float, tuple[float, ...], tuple[float, ...], tuple[float, ...]]
_SCHEME: _Scheme = (
    hiv_taylor.ORDER,
    hiv_taylor.REACH,
    hiv_taylor.LEAST,
    hiv_taylor.TINY,
    tuple(hiv_taylor.WEIGHTS[:, 0].tolist()),
    hiv_taylor.NUMERATOR,
    hiv_taylor.DENOMINATOR,
)


def advance(
    states: Float64Array,
    patient: Patient,
    actions: Int64Array,
    days: float,
    *,
    tolerance: float = hiv_taylor.TOLERANCE,
    users: Int64Array | None = None,
) -> Float64Array:
    """The states [6, n] after ``days`` under the treatments [n], as `hiv_taylor.advance`."""
    before = np.ascontiguousarray(states, dtype=np.float64)
    rates, after = hiv_taylor.rates_of(patient, actions), np.empty_like(before)
    if before.shape != (6, rates.shape[1]):  # compiled code would read out of bounds
        raise ConfigError(expected=f"states of shape (6, {rates.shape[1]})", found=f"shape {before.shape}")
    most = hiv_taylor.MAX_STEPS
    failed = _kernel()(before, rates, float(days), float(tolerance), most, _SCHEME, after)
    if failed >= 0:
        raise hiv_taylor.lost(after[:, failed], failed if users is None else int(users[failed]))
    return after


@cache
def _kernel() -> Callable[..., int]:
    """The compiled `_integrate`."""
    table, number = numba.float64[:, ::1], numba.float64
    signature = numba.int64(table, table, number, number, numba.int64, numba.typeof(_SCHEME), table)
    try:
        return cast(Callable[..., int], numba.njit(signature, cache=True, **_OPTIONS)(_integrate))
    except Exception:  # no writable folder, a full disk, a damaged cache; an error in the code comes again
        return cast(Callable[..., int], numba.njit(signature, **_OPTIONS)(_integrate))


def _native(function: _Function) -> _Function:
    return cast(_Function, numba.njit(**_OPTIONS)(function))


def _integrate(
    states: Float64Array,
    rates: Float64Array,
    days: float,
    tolerance: float,
    most: int,
    scheme: _Scheme,
    after: Float64Array,
) -> int:
    """Write the states [6, n] after ``days`` into ``after``; return -1, or a patient who cannot be followed.

    For that patient, ``after`` has the last state.
    """
    n, order = states.shape[1], scheme[0]
    series, lane_rates = np.zeros((order + 1, 9 * _L)), np.zeros(_RATES * _L)
    sums, steps, left = np.zeros(9 * _L), np.zeros(3 * _L), np.zeros(_L)
    owner, count = np.zeros(_L, dtype=np.int64), np.zeros(_L, dtype=np.int64)
    state = series[0]
    active, waiting = min(n, _L), 0
    while True:
        lane = 0
        while lane < active:
            if left[lane] > 0.0:
                lane += 1
            elif waiting < n:
                for c in range(6):
                    state[c * _L + lane] = states[c, waiting]
                for c in range(_RATES):
                    lane_rates[c * _L + lane] = rates[c, waiting]
                left[lane], owner[lane], count[lane] = days, waiting, 0
                waiting += 1
                lane += 1
            else:  # the last lane moves here, and is handled next
                active -= 1
                for c in range(6):
                    state[c * _L + lane] = state[c * _L + active]
                for c in range(_RATES):
                    lane_rates[c * _L + lane] = lane_rates[c * _L + active]
                left[lane], owner[lane], count[lane] = left[active], owner[active], count[active]
        if active == 0:
            return -1
        _expand(order, series, lane_rates, sums, steps)
        _measure(scheme, tolerance, series, lane_rates, sums, steps)
        failed = _choose(scheme, left, steps, count, most, active)
        if failed < 0:
            failed = _move(scheme, series, sums, steps, left, active)
        for lane in range(active):
            if left[lane] <= 0.0 or lane == failed:
                for c in range(6):
                    after[c, owner[lane]] = state[c * _L + lane]
        if failed >= 0:
            return int(owner[failed])


@_native
def _expand(
    order: int, series: Float64Array, rates: Float64Array, sums: Float64Array, inverse: Float64Array
) -> None:
    """Fill in the coefficients of orders 1 to p; ``sums`` and ``inverse`` are scratch."""
    x = series[0]
    for i in range(_L):
        infected = x[_N1 + i] + x[_N2 + i]
        inverse[i] = 1.0 / (infected + rates[13 * _L + i])
        inverse[_L + i] = 1.0 / (infected + rates[14 * _L + i])
        x[_I + i], x[_W + i], x[_U + i] = infected, 0.0, 0.0
    for k in range(order):
        _multiply(series, sums, k)
        _follow(series, rates, sums, inverse, k)


@_native
def _multiply(x: Float64Array, sums: Float64Array, k: int) -> None:
    """The Cauchy products of order k without their last terms: V T1, V T2, E T1*, E T2*, I w, I u."""
    odd, first, last = float(k % 2), x[0], x[k]
    for i in range(_L):
        v, e, both = odd * last[_V + i], odd * last[_E + i], odd * last[_I + i]
        sums[_T1 + i], sums[_T2 + i] = v * first[_T1 + i], v * first[_T2 + i]
        sums[_N1 + i], sums[_N2 + i] = e * first[_N1 + i], e * first[_N2 + i]
        sums[_W + i], sums[_U + i] = both * first[_W + i], both * first[_U + i]
    for j in range(k % 2, k, 2):  # two terms at a time: the sums are loaded and stored half as often
        y, z, y_back, z_back = x[j], x[j + 1], x[k - j], x[k - j - 1]
        for i in range(_L):
            v, e, both = y_back[_V + i], y_back[_E + i], y_back[_I + i]
            v1, e1, both1 = z_back[_V + i], z_back[_E + i], z_back[_I + i]
            sums[_T1 + i] = sums[_T1 + i] + v * y[_T1 + i] + v1 * z[_T1 + i]
            sums[_T2 + i] = sums[_T2 + i] + v * y[_T2 + i] + v1 * z[_T2 + i]
            sums[_N1 + i] = sums[_N1 + i] + e * y[_N1 + i] + e1 * z[_N1 + i]
            sums[_N2 + i] = sums[_N2 + i] + e * y[_N2 + i] + e1 * z[_N2 + i]
            sums[_W + i] = sums[_W + i] + both * y[_W + i] + both1 * z[_W + i]
            sums[_U + i] = sums[_U + i] + both * y[_U + i] + both1 * z[_U + i]


@_native
def _follow(
    series: Float64Array, rates: Float64Array, sums: Float64Array, inverse: Float64Array, k: int
) -> None:
    """The quotients w and u of order k, and the unknowns of order k+1.

    Results go through ``sums``: loops that read and write the same table are not turned into SIMD.
    """
    first, x, following = series[0], series[k], series[k + 1]
    factor, source = 1.0 / (k + 1), 1.0 if k == 0 else 0.0
    for i in range(_L):
        v, e, now = first[_V + i], first[_E + i], x[_E + i]
        w, u = (now - sums[_W + i]) * inverse[i], (now - sums[_U + i]) * inverse[_L + i]
        new_1 = (sums[_T1 + i] + v * x[_T1 + i]) * rates[9 * _L + i]  # -(infections)
        new_2 = (sums[_T2 + i] + v * x[_T2 + i]) * rates[10 * _L + i]
        killed_1 = (sums[_N1 + i] + e * x[_N1 + i]) * rates[11 * _L + i]  # -(killings)
        killed_2 = (sums[_N2 + i] + e * x[_N2 + i]) * rates[12 * _L + i]
        burst, hill = rates[7 * _L + i] * x[_I + i], rates[8 * _L + i] * u + rates[6 * _L + i] * w
        sums[_T1 + i] = (rates[i] * x[_T1 + i] + new_1 + source * rates[15 * _L + i]) * factor
        sums[_T2 + i] = (rates[_L + i] * x[_T2 + i] + new_2 + source * rates[16 * _L + i]) * factor
        sums[_N1 + i] = (rates[2 * _L + i] * x[_N1 + i] + (killed_1 - new_1)) * factor
        sums[_N2 + i] = (rates[3 * _L + i] * x[_N2 + i] + (killed_2 - new_2)) * factor
        sums[_V + i] = (rates[4 * _L + i] * x[_V + i] + (burst + new_2) + new_1) * factor
        sums[_E + i] = (rates[5 * _L + i] * now + hill + source * rates[18 * _L + i]) * factor
        sums[_W + i], sums[_U + i] = w, u
    for c in range(6):
        for i in range(_L):
            following[c * _L + i] = sums[c * _L + i]
    for i in range(_L):
        x[_W + i], x[_U + i], following[_I + i] = sums[_W + i], sums[_U + i], sums[_N1 + i] + sums[_N2 + i]


@_native
def _measure(
    scheme: _Scheme,
    tolerance: float,
    series: Float64Array,
    rates: Float64Array,
    ratios: Float64Array,
    steps: Float64Array,
) -> None:
    """x_p / x_{p-1} of each unknown, the largest defect [1] and the longest step by the fastest rate [2]."""
    p, reach, _, tiny, weights, _, _ = scheme
    x, x2, x1, x0, shrink = series[0], series[p - 2], series[p - 1], series[p], (p - 1) / p
    for i in range(_L):
        infections = x[_T1 + i] * rates[9 * _L + i] + x[_T2 + i] * rates[10 * _L + i]  # per virus, negative
        virus = infections * rates[19 * _L + i] + rates[4 * _L + i]
        t2 = x[_V + i] * rates[10 * _L + i] + rates[_L + i]
        steps[_L + i], steps[2 * _L + i] = 0.0, -reach / (virus if virus < t2 else t2)
    for c in range(6):
        weight = weights[c] / tolerance
        for i in range(_L):
            at = c * _L + i
            before, ratio, largest = x1[at], x0[at] / (x1[at] + tiny), steps[_L + i]
            defect = abs((ratio - before / (x2[at] + tiny) * shrink) * before * (weight / x[at]))
            ratios[at], steps[_L + i] = ratio, defect if defect > largest else largest


@_native
def _choose(
    scheme: _Scheme, left: Float64Array, steps: Float64Array, count: Int64Array, most: int, m: int
) -> int:
    """The steps [0] that the tolerance allows, at most to the end; a last pair of steps is equally long.

    Returns a lane that has had too many steps, or -1. Loops with an early exit are not turned into SIMD,
    where a power could round differently.
    """
    least, exponent = scheme[2], -1.0 / scheme[0]
    for i in range(m):
        count[i] += 1
        if count[i] > most:
            return i
        longest, end = steps[2 * _L + i], left[i]
        h = steps[_L + i] ** exponent
        h = h if h < longest else longest
        h = max(h, longest * least)
        if h >= end:
            h = end
        elif h > 0.5 * end:
            h = 0.5 * end
        steps[i] = h
    return -1


@_native
def _move(
    scheme: _Scheme,
    series: Float64Array,
    sums: Float64Array,
    steps: Float64Array,
    left: Float64Array,
    m: int,
) -> int:
    """Sum the series with its tail at the chosen steps; return a lane that is no longer positive, or -1."""
    p, reach, _, _, _, (n0, n1, n2, n3), (d0, d1, d2, d3, d4) = scheme
    state, last = series[0], series[p]
    for c in range(6):
        for i in range(_L):
            at = c * _L + i
            z = sums[at] * (-float(p) * steps[i])
            z = z if z > 0.0 else 0.0
            z = z if z < 2.0 * reach else 2.0 * reach
            tail = (((n3 * z + n2) * z + n1) * z + n0) / ((((d4 * z + d3) * z + d2) * z + d1) * z + d0) * z
            sums[at] = last[at] + last[at] * tail
    for k in range(p - 1, -1, -1):
        x = series[k]
        for c in range(6):
            for i in range(_L):
                sums[c * _L + i] = sums[c * _L + i] * steps[i] + x[c * _L + i]
    failed = -1
    for i in range(m):
        left[i] -= steps[i]
        for c in range(6):
            value = sums[c * _L + i]
            state[c * _L + i] = value
            if not (value > 0.0 and value < np.inf):  # NaN is not > 0
                failed = i
    return failed
