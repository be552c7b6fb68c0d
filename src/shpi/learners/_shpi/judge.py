r"""The one test: what a policy brings over mu, from mu's log, with the share of every user in the error.

    D(x) = V^pi(x) - V^mu(x)   solves   D = E_{a ~ pi}[ delta + gamma c D(x') | x ]
    delta = r + gamma V^mu(x') - V^mu(x)

by least squares over features phi of the state, with the ratios rho = pi(a|x) / mu(a|x) of single steps:

    theta = M^-1 sum rho phi delta,    M = sum rho phi (phi - gamma c phi')' + penalty,    lift = mean D(x_0)

c = 1 - 1/50: pi is followed for about 50 decisions, then mu's value is paid. That is SHPI's own bargain: a
bias that can be stated, for a system that stays solvable where pi is far from mu. What is promised follows pi
for 10 decisions only: states that pi reaches later may lie outside the log. A user's influence on the
lift is the user's part of its linearised error, the estimate of V^mu included, so two policies are compared
on common users. Two sets of features give two lifts; what they differ by counts as error too.

The same system gives visits, d_pi / d_mu at every decision. Where pi goes to states that the log does not
have, features make them up: visits below 0 here, as many too many there. If a share s of them is below 0
beyond that of mu's own, a part 2 s of the lift rests on visits that cannot be, and counts as error. A table
has none; in HIV, where a bolder policy ends outside the log, the worst candidates have the most.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from shpi.data.logged import LoggedData
from shpi.errors import DataError
from shpi.features import Chain, FeatureMap, Powers, RandomFourier, Recipe, Standardise
from shpi.features.cells import CellsMap
from shpi.learners._shpi.shapes import few_contexts
from shpi.protocols import BoolArray, Float32Array, Float64Array, FloatArray, IntArray
from shpi.values._lstd.moments import with_intercept
from shpi.values.base import FittedValue, StateValues
from shpi.values.lstd import LinearValue
from shpi.values.past import PastValue, with_past
from shpi.values.transitions import rewards_of, usable_transitions

FOLLOWED, PROMISED = 50, 10  # decisions for which pi is followed, on average, in tests and in the bound
NARROW = 10  # up to so many dimensions random Fourier features, beyond it lines and squares
N_FOURIER = 100  # random Fourier features of each draw
RIDGE = 1e-3  # penalty, as a share of the Gram matrix's diagonal
TAIL = 3.0  # standard deviations at which the squares are cut
MAP_ROWS = 50_000  # contexts that the features are fitted to
BLOCK = 4_096  # rows whose features stay in the cache


@dataclass(frozen=True, kw_only=True, eq=False)
class Influence:
    """Lifts over mu, by set of features, and the part that each user has in their error."""

    lifts: Float64Array  # [m]
    parts: Float64Array  # [m, users]
    doubts: Float64Array  # [m] the part of each lift that rests on visits which cannot be
    noise: float = 1.0  # share of f's variance that is noise; 0: f was not learned from these users

    @property
    def estimate(self) -> float:
        """The mean over the sets of features."""
        return float(self.lifts.mean())

    @property
    def outside(self) -> float:
        """The share of visits below 0, beyond that of mu's own: pi goes where the log does not."""
        total = float(np.abs(self.lifts).sum())
        return float(np.abs(self.doubts).sum()) / (2 * total) if total > 0 else 0.0

    @property
    def error(self) -> float:
        """The standard error: sampling of users, the spread over sets of features, and visits that cannot be.

        Half one teaches the f that half two judges, and the other way round. As far as f is noise, both
        judgements are one product of two noises, and the variance of their sum is twice the sum of their
        variances; as far as f is signal, they are independent. So the variance counts 1 + noise times.
        """
        users = self.parts.shape[1]
        sampling = (1 + self.noise) * users / max(users - 1, 1) * float(np.sum(self.parts.mean(axis=0) ** 2))
        spread = float(self.lifts.var(ddof=1)) if len(self.lifts) > 1 else 0.0
        return float(np.sqrt(sampling + spread + self.doubts.mean() ** 2))

    def less(self, other: Influence) -> Influence:
        """The difference of two lifts, on common users and features."""
        return Influence(
            lifts=self.lifts - other.lifts,
            parts=self.parts - other.parts,
            doubts=self.doubts - other.doubts,
            noise=max(self.noise, other.noise),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class StateMap:
    """One set of features, and V^mu in it."""

    features: FeatureMap
    theta: Float64Array  # [p] of V^mu
    phi: Float32Array  # [n, p]
    change: Float32Array  # [n, p] phi - gamma phi'
    final: Float32Array  # [N, p] after the last decision; 0 after a termination
    penalty: Float64Array  # [p]
    delta: Float64Array  # [n] of V^mu; 0 where the log does not say what followed
    surprise: Float64Array  # [n] all that followed, discounted, less V^mu
    system: Float64Array  # [p, p] that V^mu solved
    by_user: Float64Array  # [users, p] sum of phi delta


@dataclass(frozen=True, kw_only=True, eq=False)
class Judge:
    """Measures policies on one log."""

    logs: LoggedData
    maps: tuple[StateMap, ...]
    rewards: Float64Array  # [n], in units of the largest
    unit: float
    usable: BoolArray  # [n] reward and next context are known
    user: IntArray  # [n]
    table: CellsMap | None  # the contexts, where they are few
    usual: Float64Array  # [2] the mean of what users had brought, beside the contexts; empty with a table
    realised: bool = False  # whether A^mu is taken from what followed, instead of V^mu at the next state
    _of_mu: dict[float, list[Float64Array]] = field(default_factory=dict, repr=False)  # visits, by `followed`

    @classmethod
    def of(cls, logs: LoggedData, *, gamma: float, seed: int) -> Judge:
        """Fit the features and V^mu."""
        usable = usable_transitions(logs)
        if not usable.any():
            raise DataError(
                expected="at least one decision whose reward and next context are known",
                found="none",
                remedy="log the context after the last decision, or mark trajectories as terminated",
            )
        rewards = np.where(usable, rewards_of(logs), 0.0)
        unit = float(np.abs(rewards).max()) or 1.0
        rewards = rewards / unit  # single precision holds them
        user = logs.user_codes[logs.trajectory_of_row]
        table, wide, usual = few_contexts(logs), logs, np.zeros(0)
        features: list[FeatureMap] = []
        if table is not None:
            features = [table]
        else:
            wide = with_past(logs)
            usual = wide.contexts[:, logs.schema.width :].mean(axis=0, dtype=np.float64)
            shapes: list[Recipe] = (  # two draws for narrow contexts; lines, and squares too, for wide ones
                [RandomFourier(n_features=N_FOURIER, intercept=False, seed=seed + i) for i in range(2)]
                if wide.schema.width <= NARROW
                else [Powers(degree=degree, intercept=False, limit=TAIL) for degree in (1, 2)]
            )
            sample = wide.contexts[:: 1 + len(logs) // MAP_ROWS]
            features = [Chain((Standardise(), shape)).fit(sample) for shape in shapes]
        return cls(
            logs=logs,
            maps=tuple(_state_map(wide, phi, rewards, usable, user, gamma) for phi in features),
            rewards=rewards,
            unit=unit,
            usable=usable,
            user=user,
            table=table,
            usual=usual,
        )

    def lift(self, rho: FloatArray, followed: float = FOLLOWED) -> Influence:
        """The lift of the policy with these ratios pi(a_t|x_t) / mu(a_t|x_t) [n]."""
        results = [self._lift(states, rho, followed) for states in self.maps]
        lifts = np.array([lift for lift, _, _ in results])
        below = np.array([_below_zero(visits[self.usable]) for *_, visits in results])
        own = np.array([_below_zero(visits[self.usable]) for visits in self._visits_of_mu(followed)])
        return Influence(
            lifts=self.unit * lifts,
            parts=self.unit * np.stack([parts for _, parts, _ in results]),
            doubts=self.unit * 2 * np.maximum(below - own, 0.0) * lifts,
        )

    def _lift(
        self, states: StateMap, rho: FloatArray, followed: float
    ) -> tuple[float, Float64Array, Float64Array]:
        """The lift, every user's part of its error, and the visits d_pi / d_mu [n], up to a factor."""
        weights = np.where(self.usable, rho, 0.0)
        target = weights * states.delta  # [n] each row's estimate of E_{a ~ pi} A^mu(x, a)
        if self.realised:
            target = np.where(self.usable, weights - 1.0, 0.0) * states.surprise
        coefficients, system = _difference(states, followed, weights, target)
        first, users = self.logs.offsets[:-1], self.logs.n_users
        visits = self._visits(states, system)
        stays = _times(states.phi, coefficients) / followed
        change = _times(states.change, coefficients) * (1 - 1 / followed)
        residual = target - weights * (stays + change)
        parts = np.bincount(self.user, weights=visits * residual, minlength=users).astype(np.float64)
        if not self.realised:  # the error of V^mu; beside what followed it is the same for pi and mu
            by_row = (visits * weights).astype(np.float32) @ states.change
            parts += states.by_user @ np.linalg.solve(states.system.T, -by_row)
        starts = states.phi[first].astype(np.float64) @ coefficients
        here = np.bincount(self.logs.user_codes, weights=starts, minlength=users) / users
        lift = float(here.sum())
        return lift, parts + here - lift / users, visits

    def _visits(self, states: StateMap, system: Float64Array) -> Float64Array:
        """d_pi / d_mu at every decision [n], up to a factor: how the lift depends on each row's equation."""
        starts = states.phi[self.logs.offsets[:-1]].sum(axis=0, dtype=np.float64)
        return _times(states.phi, np.linalg.solve(system.T, starts / self.logs.n_users))

    def _visits_of_mu(self, followed: float) -> list[Float64Array]:
        """The same for mu, by set of features: what is below 0 here, these features cannot show at all."""
        if followed not in self._of_mu:
            known = self.usable.astype(np.float64)
            systems = [_difference(states, followed, known, known)[1] for states in self.maps]
            pairs = zip(self.maps, systems, strict=True)
            self._of_mu[followed] = [self._visits(states, system) for states, system in pairs]
        return self._of_mu[followed]

    def gradient(self) -> Float64Array:
        """D lift / d log pi(a_t|x_t) at pi = mu, [n]: visits times the advantage of the taken action."""
        total = np.zeros(len(self.logs))
        for states, visits in zip(self.maps, self._visits_of_mu(FOLLOWED), strict=True):
            total += visits * (states.surprise if self.realised else states.delta)
        mean: Float64Array = total * (self.unit / len(self.maps))
        return mean

    def value(self) -> FittedValue:
        """V^mu as a function of contexts."""
        states = self.maps[-1]
        linear = LinearValue(features=states.features, theta=self.unit * states.theta)
        return PastValue(value=linear, usual=self.usual) if self.table is None else linear

    def values(self, rho: Float64Array | None, rows: BoolArray, followed: float = PROMISED) -> StateValues:
        """V of the policy with these ratios (None: of mu), learned from some of the rows."""
        states, keep = self.maps[-1], self.usable & rows
        weights = keep.astype(np.float32)
        system = (states.phi.T @ (weights[:, None] * states.change)).astype(np.float64)
        target = (states.phi.T @ (weights * self.rewards.astype(np.float32))).astype(np.float64)
        theta = np.linalg.solve(system + np.diag(states.penalty), target).astype(np.float64)
        if rho is not None:
            delta = np.where(keep, self.rewards - _times(states.change, theta), 0.0)
            ratios = np.where(keep, rho, 0.0)
            theta = theta + _difference(states, followed, ratios, ratios * delta)[0]
        return StateValues(
            rows=self.unit * _times(states.phi, theta),
            final=self.unit * _times(states.final, theta),
        )


def _state_map(
    wide: LoggedData,
    features: FeatureMap,
    rewards: Float64Array,
    usable: BoolArray,
    user: IntArray,
    gamma: float,
) -> StateMap:
    phi = with_intercept(features, wide.contexts, np.float32)
    final = with_intercept(features, wide.final_contexts, np.float32)
    final[wide.terminated] = 0.0
    change = np.empty_like(phi)
    change[:-1] = phi[1:]
    change[wide.offsets[1:] - 1] = final
    change *= -np.float32(gamma)
    change += phi
    change[~usable] = 0.0
    squares = np.einsum("np,np->p", phi, phi, dtype=np.float64)
    penalty = RIDGE * squares + 1e-9 * len(phi)
    penalty[0] = 1e-9 * len(phi)
    known = usable.astype(np.float32)
    system = (phi.T @ (known[:, None] * change)).astype(np.float64) + np.diag(penalty)
    target = (phi.T @ (known * rewards.astype(np.float32))).astype(np.float64)
    theta: Float64Array = np.linalg.solve(system, target).astype(np.float64)
    delta = np.where(usable, rewards - _times(change, theta), 0.0)
    rows = sparse.csr_matrix(
        (delta.astype(np.float32), (user, np.arange(len(phi)))), (wide.n_users, len(phi))
    )
    by_user = np.asarray(rows @ phi, dtype=np.float64)
    return StateMap(
        features=features,
        theta=theta,
        phi=phi,
        change=change,
        final=final,
        penalty=penalty,
        delta=delta,
        surprise=_summed(delta, usable, wide.offsets, gamma),
        system=system,
        by_user=by_user,
    )


def _summed(delta: Float64Array, usable: BoolArray, offsets: IntArray, gamma: float) -> Float64Array:
    """Sum of gamma^i delta_{t+i} to the end of the trajectory [n], or to where the log breaks off."""
    total = delta.copy()
    lengths = np.diff(offsets)
    for back in range(2, int(lengths.max(initial=0)) + 1):  # the row that is the back-th from its end
        rows = offsets[1:][lengths >= back] - back
        total[rows] += gamma * total[rows + 1] * usable[rows]
    return total


def _difference(
    states: StateMap, followed: float, weights: Float64Array, target: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Theta and M, see the head of this file, for ratios [n] that are 0 where a row is left out."""
    system = np.diag(states.penalty)
    for first in range(0, len(weights), BLOCK):
        rows = slice(first, first + BLOCK)
        phi, change = states.phi[rows], states.change[rows]
        weighted = phi * weights[rows].astype(np.float32)[:, None]
        system += weighted.T @ (np.float32(1 - 1 / followed) * change + np.float32(1 / followed) * phi)
    right = (states.phi.T @ target.astype(np.float32)).astype(np.float64)
    theta: Float64Array = np.linalg.solve(system, right).astype(np.float64)
    return theta, system


def _below_zero(visits: Float64Array) -> float:
    """The share of visits that are below 0, where none can be."""
    total = float(np.abs(visits).sum())
    return float(-np.minimum(visits, 0.0).sum()) / total if total > 0 else 0.0


def _times(features: Float32Array, theta: Float64Array) -> Float64Array:
    """The product of features [n, p] and theta in single precision, without a copy of the features."""
    return (features @ theta.astype(np.float32)).astype(np.float64)
