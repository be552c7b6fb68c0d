"""Treatment of HIV patients: a stiff differential equation under four combinations of two drugs.

A decision chooses the treatment of the next 5 days; the equation is in `shpi.envs.hiv.ode`. A policy sees the
log10 of the six state variables. The reward is earned at the state that follows,

    r_t = -0.1 V' - 2e4 eps1^2 - 2e3 eps2^2 + 1e3 E'

so the first state earns nothing. Nobody leaves: the horizon truncates. Everything is deterministic except the
start, where each state variable is multiplied by 1 + U(-s, s), s = ``start_spread``.

This is the `HIVTreatment` of RepBM, without its integration error of up to 1e-4: states follow the converged
solution within about 1e-8 per decision. Returns differ by orders of magnitude between patients and policies
(from -4e5 to 9e9 under random treatment), so standardise rewards before learning from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np

from shpi.data.logged import LoggedData
from shpi.envs.base import check_actions, check_reset, check_running, real_number, whole_number
from shpi.envs.hiv import taylor as hiv_taylor
from shpi.envs.hiv.ode import BASELINE, DRUGS, PATIENT_20, STATE_NAMES, Patient, checked_hidden, reward
from shpi.envs.hiv.taylor import TOLERANCE
from shpi.envs.rollout import rollout
from shpi.envs.streams import Streams
from shpi.errors import ConfigError, MissingExtraError
from shpi.protocols import BoolArray, Float64Array, Int64Array, IntArray, Policy, Step

INTEGRATORS = ("auto", "numpy", "compiled")
_START = 0  # label of the random stream


@dataclass
class _Running:
    """The state of n patients."""

    users: Int64Array  # [n]
    patient: Patient
    states: Float64Array  # [6, n] raw values
    step: int
    ended: BoolArray  # [n] all False: nobody leaves


@dataclass(frozen=True, kw_only=True, eq=False)
class HIV:
    """HIV treatment for many patients at once.

    Args:
        horizon: T.
        start_spread: s in [0, 1). With 0, the paper's literal reading, every patient starts at the same
            state; 0.05 gives a start distribution.
        patient: None for the parameters of the literature; 20 for the patient of RepBM's experiments; or
            relative deviations of the twelve parameters in `hiv_ode.HIDDEN`, [12] for all users or [N, 12],
            where user u is the patient of row u mod N.
        dt_days: duration of a treatment.
        tolerance: the largest relative error that one step of the integrator may make.
        integrator: "compiled" (`hiv.compiled`, needs the extra ``fast``), "numpy" (`hiv.taylor`), or "auto":
            compiled if numba is installed. Both use the same method. Their results differ by far less than
            the error, but not by nothing: name one of them if every bit must be the same.
        reward_unit: divisor of the rewards; 1e7 in the authors' release.
    """

    horizon: int = 200
    start_spread: float = 0.0
    patient: Any = None
    dt_days: float = 5.0
    tolerance: float = TOLERANCE
    integrator: str = "auto"
    reward_unit: float = 1.0
    _run: list[_Running] = field(init=False, repr=False, default_factory=list)  # empty before a reset

    def __post_init__(self) -> None:
        whole_number("horizon", self.horizon, least=1)
        real_number("dt_days", self.dt_days, above=0.0)
        real_number("reward_unit", self.reward_unit, above=0.0)
        if real_number("start_spread", self.start_spread, least=0.0) >= 1.0:
            raise ConfigError(expected="start_spread < 1", found=repr(self.start_spread))
        if not 1e-13 <= real_number("tolerance", self.tolerance, above=0.0) <= 1e-3:
            raise ConfigError(expected="tolerance in 1e-13..1e-3", found=repr(self.tolerance))
        Patient.from_hidden(self.hidden)
        if self.integrator not in INTEGRATORS:
            raise ConfigError(
                expected=f"an integrator: {', '.join(INTEGRATORS)}", found=repr(self.integrator)
            )
        if self.integrator == "compiled":
            _advance("compiled")  # an error now if numba is missing

    @classmethod
    def repbm(cls, **changes: Any) -> HIV:
        """The setting of RepBM's experiments: patient 20, starts within 5 % of the baseline."""
        return cls(**{"patient": 20, "start_spread": 0.05, **changes})

    @classmethod
    def released(cls, **changes: Any) -> HIV:
        """The setting of the authors' release: one start for all, rewards divided by 1e7."""
        return cls(**{"reward_unit": 1e7, **changes})

    # ------------------------------------------------------------------ properties

    @property
    def name(self) -> str:
        """The registered name."""
        return "hiv"

    @property
    def n_actions(self) -> int:
        """Four: no drug, the first, the second, both."""
        return len(DRUGS)

    @property
    def context_names(self) -> tuple[str, ...]:
        """The log10 of each state variable."""
        return tuple(f"log10_{name}" for name in STATE_NAMES)

    @cached_property
    def hidden(self) -> Float64Array:
        """The relative deviations of the patients, [N, 12]; zeros for the parameters of the literature."""
        given: Any = self.patient
        if given is None:
            return np.zeros((1, len(PATIENT_20)))
        if isinstance(given, int | np.integer):
            if isinstance(given, bool) or given != 20:
                raise ConfigError(
                    expected="patient 20, the only one that is known by number",
                    found=repr(given),
                    remedy="give the twelve relative deviations of the patient instead",
                )
            given = PATIENT_20
        table = np.atleast_2d(checked_hidden(given)).copy()
        table.flags.writeable = False
        return table

    # ------------------------------------------------------------------ the simulator

    def reset(self, n: int, seed: int, *, first: int = 0) -> Float64Array:
        """Start users first .. first+n-1 and return their contexts [n, 6]."""
        users = check_reset(n, seed, first)
        states = np.repeat(BASELINE[:, None], n, axis=1)
        if self.start_spread:
            chance = Streams(seed, users).uniform(_START, 0, len(BASELINE))
            states *= 1.0 + self.start_spread * (2.0 * chance.T - 1.0)
        shared = len(self.hidden) == 1
        patient = Patient.from_hidden(self.hidden[0] if shared else self.hidden[users % len(self.hidden)])
        run = _Running(users, patient, states, 0, np.zeros(n, dtype=bool))
        run.ended.flags.writeable = False
        self._run[:] = [run]
        return _contexts(states)

    def step(self, actions: IntArray) -> Step:
        """Let one decision [n] take effect for every user."""
        if not self._run:
            check_running(None)
        run = self._run[0]
        check_running(run.ended, run.step, self.horizon)
        chosen = check_actions(actions, len(run.users), self.n_actions)
        run.states = _advance(self.integrator)(
            run.states, run.patient, chosen, self.dt_days, tolerance=self.tolerance, users=run.users
        )
        run.step += 1
        return Step(_contexts(run.states), reward(run.states.T, chosen) / self.reward_unit, run.ended, {})

    def candidates(self) -> None:
        """None: every action is always allowed."""
        return

    def rollout(self, policy: Policy, n: int, seed: int, *, first: int = 0) -> LoggedData:
        """The log of n users under ``policy``, with its propensities; more options in `shpi.envs.rollout`."""
        return rollout(self, policy, n, seed, first=first)

    def states(self) -> Float64Array:
        """The raw state of each running user, [n, 6]: T1, T2, T1*, T2*, V, E."""
        if not self._run:
            check_running(None)
        return self._run[0].states.T.copy()


@cache
def _advance(integrator: str) -> Callable[..., Float64Array]:
    """The function of an integrator by name; numba is imported only when needed."""
    if integrator == "numpy":
        return hiv_taylor.advance
    try:
        from shpi.envs.hiv import compiled as hiv_compiled
    except MissingExtraError:
        if integrator == "compiled":
            raise
        return hiv_taylor.advance
    return hiv_compiled.advance


def _contexts(states: Float64Array) -> Float64Array:
    """log10 of the states [6, n] as [n, 6].

    The rows are padded to whole SIMD vectors; else the last bit of a logarithm could depend on the batch.
    """
    n = states.shape[1]
    padded = np.ones((len(states), -(-n // 16) * 16))
    padded[:, :n] = states
    np.log10(padded, out=padded)
    return np.ascontiguousarray(padded[:, :n].T)
