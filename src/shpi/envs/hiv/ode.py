"""The differential equation of HIV under treatment (Adams et al., 2004), for many patients at once.

The state is T1, T2 (healthy CD4 cells and macrophages), T1*, T2* (infected ones), V (free virus) and E
(immune effectors), in cells or copies per ml; time is in days. With I = T1* + T2* and drugs eps1, eps2:

    dT1  = lambda1 - d1 T1 - (1 - eps1) k1 V T1
    dT2  = lambda2 - d2 T2 - (1 - f eps1) k2 V T2
    dT1* = (1 - eps1) k1 V T1 - delta T1* - m1 E T1*
    dT2* = (1 - f eps1) k2 V T2 - delta T2* - m2 E T2*
    dV   = (1 - eps2) NT delta I - c V - (1 - eps1) k1 V T1 - (1 - f eps1) k2 V T2
    dE   = lambdaE + bE E I / (I + Kb) - dE E I / (I + Kd) - deltaE E

Each infection takes one virus (rho1 = rho2 = 1). Drugs are constant between two decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from shpi.errors import ConfigError
from shpi.protocols import Float64Array, FloatArray, IntArray

STATE_NAMES = ("T1", "T2", "T1_infected", "T2_infected", "V", "E")
# The untreated, unhealthy equilibrium, up to rounding: where every patient starts.
BASELINE: Float64Array = np.array([163573.0, 5.0, 11945.0, 46.0, 63919.0, 24.0])
# eps1 (reverse transcriptase inhibitor) and eps2 (protease inhibitor) of the four treatments, [A, 2].
DRUGS: Float64Array = np.array([[0.0, 0.0], [0.7, 0.0], [0.0, 0.3], [0.7, 0.3]])
# The parameters in which patients differ, in the order of their relative deviations.
HIDDEN = ("lambda1", "lambda2", "k1", "k2", "f", "m1", "m2", "lambdaE", "bE", "Kb", "dE", "Kd")
# Entry 20 of the patients that ship with RepBM (MIT licence), the one that its experiments treat.
PATIENT_20: tuple[float, ...] = (
    -0.1946112184997162, 0.46816823561605014, 0.20856792856393241, -0.03921113587893166,
    0.18057095024380307, 0.313893964746566, -0.024093381660099132, -0.11146573677164344,
    -0.046679126072529116, -0.38570726203357936, -0.03485294142562121, -0.09565291521906652,
)  # fmt: skip

BASELINE.flags.writeable = DRUGS.flags.writeable = False
Rate = float | Float64Array  # one for all patients, or one per patient [n]


@dataclass(frozen=True, kw_only=True, eq=False)
class Patient:
    """The parameters of the equation: numbers for one patient, arrays [n] for many."""

    lambda1: Rate = 1e4
    lambda2: Rate = 31.98
    d1: float = 0.01
    d2: float = 0.01
    f: Rate = 0.34
    k1: Rate = 8e-7
    k2: Rate = 1e-4
    delta: float = 0.7
    m1: Rate = 1e-5
    m2: Rate = 1e-5
    NT: float = 100.0
    c: float = 13.0
    lambdaE: Rate = 1.0
    bE: Rate = 0.3
    Kb: Rate = 100.0
    dE: Rate = 0.25
    Kd: Rate = 500.0
    deltaE: float = 0.1

    def __post_init__(self) -> None:
        for item in fields(self):
            value = np.asarray(getattr(self, item.name), dtype=np.float64)
            if value.ndim > 1 or not (np.isfinite(value) & (value > 0.0)).all():
                raise ConfigError(
                    expected=f"{item.name} to be finite and > 0, one number or one per patient",
                    found=str(getattr(self, item.name)),
                )
        if np.max(self.f) * DRUGS[:, 0].max() > 1.0:
            raise ConfigError(
                expected="f * eps1 <= 1, or else treatment would heal infected macrophages",
                found=f"f = {np.max(self.f):g}, eps1 = {DRUGS[:, 0].max():g}",
            )

    @classmethod
    def from_hidden(cls, hidden: ArrayLike) -> Patient:
        """Multiply the parameters of `HIDDEN` by 1 + p: p of one patient [12], or of many [n, 12]."""
        p = checked_hidden(hidden)
        typical = cls()
        return cls(**{name: getattr(typical, name) * (1.0 + p[..., j]) for j, name in enumerate(HIDDEN)})


def checked_hidden(hidden: ArrayLike) -> Float64Array:
    """Check the relative deviations of one patient [12] or of many [N, 12]: finite and above -1."""
    try:
        p = np.asarray(hidden, dtype=np.float64)
    except (TypeError, ValueError):
        p = np.empty(0)
    if p.shape[-1:] != (len(HIDDEN),) or p.ndim > 2 or p.size == 0:
        raise ConfigError(
            expected="12 relative deviations of one patient, or an array [N, 12] of many",
            found=f"{hidden!r:.80}" if p.size == 0 else f"shape {p.shape}",
            remedy=f"give one number for each of {', '.join(HIDDEN)}",
        )
    wrong = np.argwhere(~(np.isfinite(p) & (p > -1.0)))
    if len(wrong):
        place = tuple(int(i) for i in wrong[0])
        raise ConfigError(
            expected="relative deviations that are finite and > -1, so that every rate stays positive",
            found=f"{p[place]:g} for {HIDDEN[place[-1]]}",
            where=f"patient {place[0]}" if p.ndim == 2 else "",
        )
    return p


def rhs(states: FloatArray, actions: IntArray, patient: Patient) -> Float64Array:
    """The time derivative of the states [n, 6] under the treatments [n], per day: [n, 6]."""
    t1, t2, t1_infected, t2_infected, virus, effectors = np.asarray(states, dtype=np.float64).T
    eps1, eps2 = DRUGS[actions].T
    q = patient
    infected = t1_infected + t2_infected
    new1 = (1.0 - eps1) * q.k1 * virus * t1
    new2 = (1.0 - q.f * eps1) * q.k2 * virus * t2
    growth = q.bE * infected / (infected + q.Kb) - q.dE * infected / (infected + q.Kd) - q.deltaE
    return np.stack(
        [
            q.lambda1 - q.d1 * t1 - new1,
            q.lambda2 - q.d2 * t2 - new2,
            new1 - q.delta * t1_infected - q.m1 * effectors * t1_infected,
            new2 - q.delta * t2_infected - q.m2 * effectors * t2_infected,
            (1.0 - eps2) * q.NT * q.delta * infected - q.c * virus - new1 - new2,
            q.lambdaE + growth * effectors,
        ],
        axis=1,
    )


def reward(states: FloatArray, actions: IntArray) -> Float64Array:
    """-0.1 V - 2e4 eps1^2 - 2e3 eps2^2 + 1e3 E at the states [n, 6] that the treatments [n] led to: [n]."""
    cost = 2e4 * DRUGS[:, 0] ** 2 + 2e3 * DRUGS[:, 1] ** 2
    earned: Float64Array = 1e3 * states[:, 5] - 0.1 * states[:, 4] - cost[actions]
    return earned
