"""Integrates the equation of `hiv.ode` for many patients: Taylor series of order 12 with an exponential tail.

The equation has only sums, products and quotients of its unknowns, so the Taylor coefficients x_k of a
solution follow from each other by Cauchy products, for all patients at once. With u = E/(I+Kb), w = E/(I+Kd),

    (V T)_k       = sum_{j<=k} V_{k-j} T_j            and so on for E T1*, E T2*
    u_k           = (E_k - sum_{j<k} I_{k-j} u_j) / (I_0 + Kb)
    (k+1) x_{k+1} = the right-hand side of the equation in terms of order k

A plain series of order p is unstable beyond rate * h of about p/2.5, and there are two fast rates: about 14
per day for V, always, and k2 V for T2, up to 150 per day and more. But a fast mode is an exponential. Its
coefficients obey x_k = -(rate/k) x_{k-1}, so the rest of its series is known in closed form:

    sum_{k>p} x_k h^k = x_p h^p tau(z),   tau(z) = -z/(p+1) 1F1(1; p+2; -z),   z = rate h = -p h x_p/x_{p-1}

Adding it to every unknown removes the limit, and most of the error of transients. An error remains where the
last coefficients do *not* have the ratio of one exponential. This defect is known before the step is taken: h
is the largest step at which it stays below the tolerance, and no step is ever rejected.

Alternatives, on the 55 reference trajectories: steps per 5 days under random treatment; largest relative
error over 200 decisions of 54 of them, and of the one whose patient multiplies errors by about 100:

    this file, order 12, tolerance 2e-9                           10.8 steps   1e-8   3e-7
    the same with orders 10, 11, 13, 14, tolerance 3e-9           13.0 to 9.5  3e-8   5e-7 to 1e-6, same speed
    plain series of order 12, 10, 8, tolerance 1e-7               17, 21, 28   6e-8   up to 9e-7
    order 12 with stabilised weights (stable to rate * h = 17)    12.4         4e-7   5e-6
    DOP853 with a step per patient, tolerance 1e-7                32           4e-7   1e-6

Rosenbrock, extrapolated semi-implicit and multistep methods were ruled out by counting operations: at this
accuracy they take more of them per day than the series does.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

from shpi.envs.hiv.ode import DRUGS, STATE_NAMES, Patient
from shpi.errors import ConfigError
from shpi.protocols import Float64Array, Int64Array

ORDER = 12  # terms of the Taylor series
TOLERANCE = 2e-9  # largest relative error of a step
REACH = 16.0  # the largest rate * h of a step; beyond about 20, rounding errors are amplified too much
_BATCH = 1600  # patients integrated together: with fewer, calls dominate; with more, the cache overflows
_LANES = 8  # widths are multiples of this, so that SIMD loops treat every patient alike
MAX_STEPS = 5000  # per decision; the stiffest reference trajectory needs 62
# Rows of a coefficient: T1 T2 T1* T2* V E, then w, I and u.
_STATE, _T, _INFECTED, _V, _E, _I, _WU = slice(0, 6), slice(0, 2), slice(2, 4), 4, 5, 7, slice(6, 9, 2)

# tau(z) = -z/13 N(z)/D(z), N/D the [3/4] Pade approximant of 1F1(1; 14; -z): error 1e-9 at z = 5, 5e-7 at 16.
NUMERATOR = tuple(-x / (ORDER + 1) for x in (1.0, 9 / 70, 5 / 798, 107 / 957600))
DENOMINATOR = (1.0, 1 / 5, 3 / 190, 1 / 1710, 1 / 116280)
WEIGHTS = np.array([1.0, 0.1, 1.0, 1.0, 0.1, 1.0])[:, None]  # errors of T2 and V decay fast
TINY = 1e-300  # avoids 0 / 0
LEAST = 0.3 / REACH  # a step of rate * h = 0.3 is always exact to rounding
_WIDTHS = {-(-(_BATCH >> j) // _LANES) * _LANES for j in range(_BATCH.bit_length())}


def advance(
    states: Float64Array,
    patient: Patient,
    actions: Int64Array,
    days: float,
    *,
    tolerance: float = TOLERANCE,
    users: Int64Array | None = None,
) -> Float64Array:
    """The states [6, n] after ``days`` under the treatments [n]. Column i depends on its own inputs alone.

    ``_BATCH`` patients are integrated together, each at its own time and with its own step. One that is
    finished makes room for the next, so that the stiffest patient does not delay the others.

    Args:
        states: [6, n], all positive.
        patient: parameters, one set for all or one per column.
        actions: [n] in 0..3.
        days: duration of the treatments.
        tolerance: largest relative defect of one step.
        users: [n] numbers of the patients in error messages; 0..n-1 if None.
    """
    n = states.shape[1]
    rates = rates_of(patient, actions)
    queue = np.argsort(_fastest_rates(states, rates))[::-1]  # the stiffest first: they take the most steps
    states, rates, names = states[:, queue], rates[:, queue], queue if users is None else users[queue]
    finished = np.empty_like(states)
    batch = _workspace(_rounded(min(n, _BATCH)))
    waiting = batch.begin(states, rates, days)
    while True:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            _expand(batch)
            _step(batch, tolerance)
        _check(batch, names)
        done = np.flatnonzero((batch.left == 0.0) & (batch.owner >= 0))
        if not done.size:
            continue
        finished[:, queue[batch.owner[done]]] = batch.state[:, done]
        batch.owner[done] = -1
        if waiting < n:
            waiting = batch.load(done[: n - waiting], states, rates, waiting, days)
        else:
            unfinished = np.flatnonzero(batch.owner >= 0)
            if not unfinished.size:
                return finished
            if 2 * unfinished.size <= batch.width > _LANES:
                batch = batch.only(unfinished)


class _Order(NamedTuple):
    """Array views for the coefficients of order k+1; creating them anew would cost a fifth of the time."""

    v_back: Float64Array  # [k+1, w] V_k .. V_0
    t: Float64Array  # [k+1, 2, w] T1 and T2
    e_back: Float64Array  # [k+1, w] E_k .. E_0
    infected: Float64Array  # [k+1, 2, w] T1* and T2*
    i_back: Float64Array  # [k, w] I_k .. I_1
    wu_before: Float64Array  # [k, 2, w]
    e: Float64Array  # [w], order k, as the next two
    wu: Float64Array  # [2, w]
    now: Float64Array  # [9, w]
    following: Float64Array  # [6, w] the state, order k+1, as all that follow
    following_1: Float64Array  # [w] T1*
    following_2: Float64Array  # [w] T2*
    following_i: Float64Array  # [w]
    factor: float  # 1/(k+1)

    @classmethod
    def of(cls, series: Float64Array, k: int) -> _Order:
        now, following = series[k], series[k + 1]
        return cls(
            series[k::-1, _V],
            series[: k + 1, _T],
            series[k::-1, _E],
            series[: k + 1, _INFECTED],
            series[k:0:-1, _I],
            series[:k, _WU],
            now[_E],
            now[_WU],
            now,
            following[_STATE],
            following[2],
            following[3],
            following[_I],
            1.0 / (k + 1),
        )


class _Batch:
    """The patients that are being integrated, one per column, and their workspace."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.series = series = _aligned(ORDER + 1, 9, width)
        self.state = series[0, _STATE]  # [6, w] the coefficient of order 0
        self.rates = _aligned(20, width)
        self.left = _aligned(width)  # days to go
        self.owner = np.full(width, -1)  # the patient in this column, -1: none
        self.steps = np.zeros(width, dtype=np.int64)
        self.room = _aligned(4, 6, width)  # scratch with one row per unknown
        self.rows = _aligned(17, width)  # scratch
        self.powers = _aligned(ORDER + 1, width)  # h^k
        self.powers[0] = 1.0
        self.orders = [_Order.of(series, k) for k in range(ORDER)]

    def begin(self, states: Float64Array, rates: Float64Array, days: float) -> int:
        """Start with the first patients, as many as fit. Columns left over repeat the first."""
        loaded = min(states.shape[1], self.width)
        self.state[:], self.rates[:] = states[:, :1], rates[:, :1]
        self.left[:], self.owner[:], self.steps[:] = 0.0, -1, 0
        return self.load(np.arange(loaded), states, rates, 0, days)

    def load(
        self, columns: Int64Array, states: Float64Array, rates: Float64Array, start: int, days: float
    ) -> int:
        """Put patients start, start+1, … into the columns; return the first patient who is still waiting."""
        stop = start + len(columns)
        self.state[:, columns] = states[:, start:stop]
        self.rates[:, columns] = rates[:, start:stop]
        self.left[columns] = days
        self.steps[columns] = 0
        self.owner[columns] = np.arange(start, stop)
        return stop

    def only(self, columns: Int64Array) -> _Batch:
        """A batch of half the width with these columns."""
        half, kept = _workspace(_rounded(self.width // 2)), slice(0, len(columns))
        half.begin(self.state[:, columns], self.rates[:, columns], 0.0)
        half.left[kept], half.steps[kept] = self.left[columns], self.steps[columns]
        half.owner[kept] = self.owner[columns]
        return half


class _Workspaces(threading.local):
    """Workspaces kept for the next decision; allocating memory each time would cost a tenth of the time."""

    def __init__(self) -> None:
        self.by_width: dict[int, _Batch] = {}


_workspaces = _Workspaces()


def _workspace(width: int) -> _Batch:
    """A workspace of that width. The widths that a full batch shrinks to are kept, about 5 MB per thread."""
    if width in _workspaces.by_width:
        return _workspaces.by_width[width]
    batch = _Batch(width)
    if width in _WIDTHS:
        _workspaces.by_width[width] = batch
    return batch


def rates_of(patient: Patient, actions: Int64Array) -> Float64Array:
    """The factors of `_expand`, [20, n], under constant drugs.

    Rows 0-8 go with those of a coefficient: linear rates of the state, then the factors of w, I and u.
    Rows 9-12: -(infection rates) of T1, T2, and -(killing rates) of T1*, T2*; 13-14: Kd and Kb;
    15-18: the sources of T1, T2, (nothing) and E; 19: the factor of an infection rate in the virus's rate.
    """
    q, (eps1, eps2) = patient, DRUGS[actions].T
    burst = (1.0 - eps2) * (q.NT * q.delta)
    rates = np.zeros((20, len(actions)))
    for row, decay in enumerate((q.d1, q.d2, q.delta, q.delta, q.c, q.deltaE + q.dE - q.bE)):
        rates[row] = np.negative(decay)
    # E (bE I/(I+Kb) - dE I/(I+Kd)) = (bE - dE) E - bE Kb u + dE Kd w
    rates[6], rates[7], rates[8] = q.dE * q.Kd, burst, np.negative(q.bE * q.Kb)
    rates[9], rates[10] = (eps1 - 1.0) * q.k1, (q.f * eps1 - 1.0) * q.k2
    rates[11], rates[12] = np.negative(q.m1), np.negative(q.m2)
    rates[13], rates[14] = q.Kd, q.Kb
    rates[15], rates[16], rates[18] = q.lambda1, q.lambda2, q.lambdaE
    rates[19] = 1.0 + burst / q.c
    return rates


def _expand(batch: _Batch) -> None:
    """Fill in the Taylor coefficients of orders 1 to p at the state of order 0."""
    rates, rows = batch.rates, batch.rows
    linear, bilinear = rates[0:9], rates[9:13]
    # Scratch. The order of the rows lets one call add several neighbours: new, killed | sums, w, I, u.
    products, new, killed, new_1, sums = rows[0:4], rows[0:2], rows[2:4], rows[0], rows[4:13]
    change, change_t, change_ve, change_v = rows[4:10], rows[4:8], rows[8:10], rows[8]
    aside, pair, inverse, quotient = rows[1:11:9], rows[11:13], rows[13:15], rows[15:17]
    mul, add, sub, einsum = np.multiply, np.add, np.subtract, np.einsum
    first = batch.series[0]
    add(first[2], first[3], first[_I])
    add(first[_I], rates[13:15], inverse)
    np.divide(1.0, inverse, inverse)
    for k, order in enumerate(batch.orders):
        v_back, t, e_back, infected, i_back, wu_before, e, wu, now, following, one, two, both, factor = order
        if k:
            einsum("kn,kcn->cn", v_back, t, out=new)
            einsum("kn,kcn->cn", e_back, infected, out=killed)
            einsum("kn,kcn->cn", i_back, wu_before, out=quotient)
            sub(e, quotient, quotient)
            mul(quotient, inverse, wu)
        else:
            mul(v_back, t[0], new)
            mul(e_back, infected[0], killed)
            mul(e, inverse, wu)
        mul(products, bilinear, products)  # now -(infections) and -(killings)
        mul(now, linear, sums)
        add(pair, aside, pair)  # NT delta (1 - eps2) I - (infections of T2), and the two Hill terms
        add(change_ve, pair, change_ve)
        add(change_v, new_1, change_v)
        sub(killed, new, killed)
        add(change_t, products, change_t)
        if not k:
            add(change[0:2], rates[15:17], change[0:2])
            add(change_ve, rates[17:19], change_ve)
        mul(change, factor, following)
        add(one, two, both)


def _step(batch: _Batch, tolerance: float) -> None:
    """Move every patient by the step that the tolerance allows, at most to the end of the treatment."""
    p, series, state = ORDER, batch.series, batch.state
    h, other, rate = batch.rows[:3]
    before, z, defect, tail = batch.room
    np.add(series[p - 2 : p, _STATE], TINY, batch.room[:2])
    np.divide(series[p - 1 :, _STATE], batch.room[:2], batch.room[:2])  # x_k / x_{k-1}, and 0 for 0/0
    # The defect of order p, relative to the state, and the step at which it reaches the tolerance
    np.multiply(before, (p - 1) / p, before)
    np.subtract(z, before, defect)
    np.multiply(defect, series[p - 1, _STATE], defect)
    np.divide(WEIGHTS / tolerance, state, tail)
    np.multiply(defect, tail, defect)
    np.abs(defect, defect)
    np.fmax.reduce(defect, axis=0, out=h)
    np.power(h, -1.0 / p, h)
    np.divide(REACH, _fastest_rates(state, batch.rates), rate)
    np.fmin(h, rate, h)
    np.multiply(rate, LEAST, rate)
    np.maximum(h, rate, out=h)
    # Not past the end, and no tiny last step: if two steps reach the end, they are equal.
    np.multiply(batch.left, 0.5, other)
    np.copyto(h, other, where=(h > other) & (h < batch.left))
    np.minimum(h, batch.left, out=h)
    # The series, with its tail
    np.multiply(h, -float(p), other)
    np.multiply(z, other, z)
    np.maximum(z, 0.0, out=z)
    np.minimum(z, 2.0 * REACH, out=z)
    _tail(z, tail, before)
    last = series[p, _STATE]
    np.multiply(tail, last, tail)
    np.add(last, tail, last)
    _powers(h, batch.powers)
    np.einsum("kn,kcn->cn", batch.powers, series[:, _STATE], out=tail)
    state[...] = tail
    batch.left -= h
    batch.steps += 1


def _powers(h: Float64Array, out: Float64Array) -> None:
    """h^0 .. h^12, [13, w]."""
    out[1] = h
    np.multiply(h, h, out[2])
    np.multiply(out[1:3], out[2], out[3:5])
    np.multiply(out[1:5], out[4], out[5:9])
    np.multiply(out[5:9], out[4], out[9:13])


def _fastest_rates(state: Float64Array, rates: Float64Array) -> Float64Array:
    """The rate per day [w] of the faster of the two fast modes: that of the virus and that of T2."""
    virus: Float64Array = state[0] * rates[9]
    virus += state[1] * rates[10]  # -(infections per virus)
    virus *= rates[19]
    virus += rates[_V]  # -c - (1 + NT delta (1 - eps2) / c) (infections per virus)
    t2 = state[_V] * rates[10]
    t2 += rates[1]
    np.minimum(virus, t2, out=virus)
    np.negative(virus, out=virus)
    return virus


def _tail(z: Float64Array, out: Float64Array, scratch: Float64Array) -> None:
    """tau(z), elementwise."""
    for target, polynomial in ((out, NUMERATOR), (scratch, DENOMINATOR)):
        np.multiply(z, polynomial[-1], target)
        for coefficient in polynomial[-2:0:-1]:
            np.add(target, coefficient, target)
            np.multiply(target, z, target)
        np.add(target, polynomial[0], target)
    np.divide(out, scratch, out)
    np.multiply(out, z, out)


def _check(batch: _Batch, names: Int64Array) -> None:
    """Raise an error if a state is not positive and finite, or a patient takes too many steps."""
    state = batch.state
    if state.min() > 0.0 and state.max() < np.inf and batch.steps.max() <= MAX_STEPS:  # NaN is not > 0
        return
    wrong = ~((state > 0.0) & (state < np.inf)).all(axis=0)  # [w]
    stuck = (batch.steps > MAX_STEPS) & (batch.owner >= 0)
    column = int(np.flatnonzero(wrong | stuck)[0])
    raise lost(state[:, column], int(names[batch.owner[column]]))


def lost(state: Float64Array, name: int) -> ConfigError:
    """The error for a patient who cannot be integrated beyond this state [6]."""
    values = ", ".join(f"{label} = {x:.6g}" for label, x in zip(STATE_NAMES, state, strict=True))
    stuck = bool(((state > 0.0) & (state < np.inf)).all())
    return ConfigError(
        expected="a positive, finite state that can be followed in time",
        found=values + (f" after {MAX_STEPS} steps" if stuck else ""),
        where=f"patient {name}",
        remedy="use hidden parameters nearer to 0 or a smaller dt_days",
    )


def _rounded(size: int) -> int:
    return -(-size // _LANES) * _LANES


def _aligned(*shape: int) -> Float64Array:
    """Zeros that start at a multiple of 64 bytes: SIMD loops are twice as fast on aligned rows."""
    size = int(np.prod(shape))
    block = np.zeros(size + 8)
    skip = (-(block.ctypes.data // 8)) % 8
    return block[skip : skip + size].reshape(shape)
