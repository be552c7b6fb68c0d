r"""The one test: the lift of a policy over mu, estimated from mu's log, with every user's influence on it.

    D(x) = V^pi(x) - V^mu(x)   solves   D = E_{a ~ pi}[ delta + gamma c D(x') | x ]
    delta = r + gamma V^mu(x') - V^mu(x)

by least squares over features phi of the state, with the ratios rho = pi(a|x) / mu(a|x) of single steps:

    theta = M^-1 sum rho phi delta,    M = sum rho phi (phi - gamma c phi')' + penalty,    lift = mean D(x_0)

c = 1 - 1/50: pi is followed for about 50 decisions, then mu's value is paid. That is SHPI's own trade: a
bias of known form, for a system that stays well-conditioned where pi is far from mu. The printed bound
follows pi for 10 decisions only, since states that pi reaches later may lie outside the log. A user's
influence is that user's term of the linearised error of the lift, the estimate of V^mu included, so two
policies can be compared on common users. Two sets of features give two lifts; their difference counts as
error too.

The same system gives the density ratio d_pi / d_mu at every decision ("visits"). Where pi goes to states that
the log does not contain, the features extrapolate, and some visits come out negative. If a share s of them is
negative, beyond mu's own share, then 2 s of the lift rests on extrapolation and counts as error. A table has
no negative visits; in HIV, where bold policies end outside the log, the worst candidates have the most.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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
LEAST = 1e-20  # a smaller ratio counts as 0: products of denormal numbers take a hundred times as long
BLOCK = 2_048  # rows whose features stay in the cache


@dataclass(frozen=True, kw_only=True, eq=False)
class Influence:
    """Lifts over mu by set of features, and every user's influence on them."""

    lifts: Float64Array  # [m]
    parts: Float64Array  # [m, users]
    off_log: Float64Array  # [m] the part of each lift that rests on negative visits
    noise: float = 1.0  # share of f's variance that is noise; 0: f was not learned from these users

    @property
    def estimate(self) -> float:
        """The mean over the sets of features."""
        return float(self.lifts.mean())

    @property
    def conservative(self) -> float:
        """The estimate less its error due to features: what two candidates are compared by."""
        return self.estimate - self.feature_error

    @property
    def outside(self) -> float:
        """The share of negative visits beyond mu's own: how far pi leaves the states of the log."""
        total = float(np.abs(self.lifts).sum())
        return float(np.abs(self.off_log).sum()) / (2 * total) if total > 0 else 0.0

    @property
    def error(self) -> float:
        """The standard error: sampling of users, and the error due to features.

        Each half learns the f that the other half judges. If f is all noise, both judgements are the same
        product of two noises: they are fully correlated, and the variance of their sum is twice the sum of
        their variances. If f is all signal, they are independent. So the variance counts 1 + noise times.
        """
        users = self.parts.shape[1]
        sampling = (1 + self.noise) * users / max(users - 1, 1) * float(np.sum(self.parts.mean(axis=0) ** 2))
        return float(np.sqrt(sampling + self.feature_error**2))

    @property
    def feature_error(self) -> float:
        """The error that more users do not reduce: the spread over sets of features, and negative visits."""
        spread = float(self.lifts.var(ddof=1)) if len(self.lifts) > 1 else 0.0
        return float(np.sqrt(spread + self.off_log.mean() ** 2))

    def less(self, other: Influence) -> Influence:
        """The difference of two lifts, on common users and features."""
        return Influence(
            lifts=self.lifts - other.lifts,
            parts=self.parts - other.parts,
            off_log=self.off_log - other.off_log,
            noise=max(self.noise, other.noise),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """Which state follows which."""

    usable: BoolArray  # [n] reward and next context are known
    trajectory: IntArray  # [n]
    last: BoolArray  # [n] whether it is the last decision of its trajectory
    gamma: float

    def change(self, here: Float64Array, final: Float64Array) -> Float64Array:
        """The change u - gamma u' [n] of a number u of every state [n] and of the ends [N]."""
        ahead = np.append(here[1:], 0.0)
        ahead[self.last] = final
        return np.where(self.usable, here - self.gamma * ahead, 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class StateMap:
    """One set of features, and V^mu in it."""

    features: FeatureMap
    within: bool  # whether these are the first columns of the next set
    theta: Float64Array  # [p] of V^mu
    phi: Float32Array  # [n + 1, p]; the last row says nothing
    steps: Steps
    final: Float32Array  # [N, p] after the last decision; 0 after a termination
    starts: Float64Array  # [p] mean phi of the first decisions, per user
    penalty: Float64Array  # [p]
    delta: Float64Array  # [n] of V^mu; 0 where the log does not say what followed
    surprise: Float64Array  # [n] the discounted return from here on, less V^mu
    system: Float64Array  # [p, p] that V^mu solved
    by_user: Float64Array  # [users, p] sum of phi delta

    def at_rows(self, *thetas: FloatArray) -> Float64Array:
        """The products phi'theta at the logged states, [m, n] for m thetas, in single precision."""
        columns = np.stack(thetas, axis=1).astype(np.float32)
        return np.ascontiguousarray((self.phi[:-1] @ columns).T, dtype=np.float64)

    def at_ends(self, theta: Float64Array) -> Float64Array:
        """The same after the last decisions [N]."""
        return (self.final @ theta.astype(np.float32)).astype(np.float64)

    def change(self, here: Float64Array, theta: Float64Array) -> Float64Array:
        """(phi - gamma phi')'theta [n], where phi'theta is known; 0 where the next state is not."""
        return self.steps.change(here, self.at_ends(theta))

    def sum_of_changes(self, weights: Float64Array) -> Float64Array:
        """Sum of weights (phi - gamma phi') [p], for weights [n] that are 0 where a row is left out."""
        passed = np.where(self.steps.last, 0.0, self.steps.gamma * weights)
        weights_of_phi = weights - np.append(0.0, passed[:-1])
        ends = (self.steps.gamma * weights[self.steps.last]).astype(np.float32)
        total: Float32Array = weights_of_phi.astype(np.float32) @ self.phi[:-1] - ends @ self.final
        return total.astype(np.float64)


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
    _thetas: dict[bytes, Float64Array] = field(default_factory=dict, repr=False)  # of V^mu, by rows
    _last: dict[float, tuple[Float64Array, list[Float64Array]]] = field(default_factory=dict, repr=False)
    # the last ratios and their systems, by `followed`: two judges and a test ask for the first candidate

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
        widths: tuple[int | None, ...] = (None,)  # columns of a set of features; None: all
        if table is not None:
            features = [table]
        else:
            wide = with_past(logs)
            usual = wide.contexts[:, logs.schema.width :].mean(axis=0, dtype=np.float64)
            shapes: list[Recipe] = [  # two draws for narrow contexts
                RandomFourier(n_features=N_FOURIER, intercept=False, seed=seed + i) for i in range(2)
            ]
            if wide.schema.width > NARROW:  # lines, and lines with squares
                shapes = [Powers(degree=2, intercept=False, limit=TAIL)]
                widths = (1 + wide.schema.width, None)
            sample = wide.contexts[:: 1 + len(logs) // MAP_ROWS]
            features = [Chain((Standardise(), shape)).fit(sample) for shape in shapes]
        last = np.zeros(len(logs), dtype=bool)
        last[logs.offsets[1:] - 1] = True
        steps = Steps(usable=usable, trajectory=logs.trajectory_of_row, last=last, gamma=gamma)
        maps = []
        for phi in features:
            columns = _columns(wide, phi)
            for width in widths:
                mine = [column[:, :width] for column in columns]
                maps.append(_state_map(wide, phi, mine[0], mine[1], steps, rewards, user))
        return cls(
            logs=logs,
            maps=tuple(maps),
            rewards=rewards,
            unit=unit,
            usable=usable,
            user=user,
            table=table,
            usual=usual,
        )

    def lift(self, rho: FloatArray, followed: float = FOLLOWED) -> Influence:
        """The lift of the policy with these ratios pi(a_t|x_t) / mu(a_t|x_t) [n]."""
        weights = np.where(self.usable & (rho > LEAST), rho, 0.0)
        if followed not in self._last or not np.array_equal(self._last[followed][0], weights):
            self._last[followed] = weights, self._systems(weights, followed)
        pairs = zip(self.maps, self._last[followed][1], strict=True)
        results = [self._lift(states, system, weights, followed) for states, system in pairs]
        lifts = np.array([lift for lift, _, _ in results])
        below = np.array([_negative_share(visits[self.usable]) for *_, visits in results])
        own = np.array([_negative_share(visits[self.usable]) for visits in self._visits_of_mu(followed)])
        return Influence(
            lifts=self.unit * lifts,
            parts=self.unit * np.stack([parts for _, parts, _ in results]),
            off_log=self.unit * 2 * np.maximum(below - own, 0.0) * lifts,
        )

    def _lift(
        self, states: StateMap, system: Float64Array, weights: Float64Array, followed: float
    ) -> tuple[float, Float64Array, Float64Array]:
        """The lift, every user's part of its error, and the visits d_pi / d_mu [n], up to a factor."""
        target = weights * states.delta  # [n] each row's estimate of E_{a ~ pi} A^mu(x, a)
        if self.realised:
            target = np.where(self.usable, weights - 1.0, 0.0) * states.surprise
        coefficients = _solved(states, system, target)
        users, solved = self.logs.n_users, np.linalg.solve(system.T, states.starts)
        here, visits = states.at_rows(coefficients, solved)
        change = states.change(here, coefficients) * (1 - 1 / followed)
        residual = target - weights * (here / followed + change)
        parts = np.bincount(self.user, weights=visits * residual, minlength=users).astype(np.float64)
        if not self.realised:  # the error of V^mu; beside what followed it is the same for pi and mu
            by_row = states.sum_of_changes(visits * weights)
            parts += states.by_user @ np.linalg.solve(states.system.T, -by_row)
        starts = here[self.logs.offsets[:-1]]
        own = np.bincount(self.logs.user_codes, weights=starts, minlength=users) / users
        lift = float(own.sum())
        return lift, parts + own - lift / users, visits

    def _systems(self, weights: Float64Array, followed: float) -> list[Float64Array]:
        """M of every set of features, see the head of this file, for ratios [n] that are 0 off the log."""
        systems: list[Float64Array] = []
        sums = np.zeros((0, 0))
        for states in reversed(self.maps):
            width = len(states.penalty)
            sums = sums[:width, :width] if states.within else _moments(states, followed, weights)
            systems.insert(0, sums + np.diag(states.penalty))
        return systems

    def _visits_of_mu(self, followed: float) -> list[Float64Array]:
        """The visits of mu itself, by set of features: a negative share here is the features' own."""
        if followed not in self._of_mu:
            known = self.usable.astype(np.float64)
            pairs = zip(self.maps, self._systems(known, followed), strict=True)
            self._of_mu[followed] = [
                states.at_rows(np.linalg.solve(system.T, states.starts))[0] for states, system in pairs
            ]
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
        states, keep, key = self.maps[-1], self.usable & rows, rows.tobytes()
        penalty = np.diag(states.penalty)
        if key not in self._thetas:
            system = _moments(states, np.inf, keep.astype(np.float64)) + penalty
            self._thetas[key] = _solved(states, system, np.where(keep, self.rewards, 0.0))
        theta = self._thetas[key]
        if rho is not None:
            ratios = np.where(keep & (rho > LEAST), rho, 0.0)
            target = ratios * (self.rewards - states.change(states.at_rows(theta)[0], theta))
            theta = theta + _solved(states, _moments(states, followed, ratios) + penalty, target)
        return StateValues(rows=self.unit * states.at_rows(theta)[0], final=self.unit * states.at_ends(theta))


def _columns(wide: LoggedData, features: FeatureMap) -> tuple[Float32Array, Float32Array]:
    """Phi of the logged states [n + 1, p], and of those after the last decisions [N, p]."""
    phi = np.zeros((len(wide) + 1, 1 + features.width), dtype=np.float32)
    for first in range(0, len(wide), BLOCK):
        rows = slice(first, min(first + BLOCK, len(wide)))
        phi[rows] = with_intercept(features, wide.contexts[rows], np.float32)
    final = with_intercept(features, wide.final_contexts, np.float32).astype(np.float32, copy=False)
    final[wide.terminated] = 0.0
    return phi, final


def _state_map(
    wide: LoggedData,
    features: FeatureMap,
    phi: Float32Array,
    final: Float32Array,
    steps: Steps,
    rewards: Float64Array,
    user: IntArray,
) -> StateMap:
    """V^mu in these features, or in their first columns."""
    n, usable = len(wide), steps.usable
    penalty = RIDGE * np.einsum("np,np->p", phi, phi, dtype=np.float64) + 1e-9 * n
    penalty[0] = 1e-9 * n
    none = np.zeros(0)
    states = StateMap(
        features=features,
        within=phi.shape[1] < 1 + features.width,
        theta=none,
        phi=phi,
        steps=steps,
        final=final,
        starts=phi[wide.offsets[:-1]].sum(axis=0, dtype=np.float64) / wide.n_users,
        penalty=penalty,
        delta=none,
        surprise=none,
        system=none,
        by_user=none,
    )
    system = _moments(states, np.inf, usable.astype(np.float64)) + np.diag(penalty)
    theta = _solved(states, system, rewards)
    delta = np.where(usable, rewards - states.change(states.at_rows(theta)[0], theta), 0.0)
    rows = sparse.csr_matrix((delta.astype(np.float32), (user, np.arange(n))), (wide.n_users, n))
    return replace(
        states,
        theta=theta,
        delta=delta,
        surprise=_summed(delta, usable, wide.offsets, steps.gamma),
        system=system,
        by_user=np.asarray(rows @ phi[:-1], dtype=np.float64),
    )


def _summed(delta: Float64Array, usable: BoolArray, offsets: IntArray, gamma: float) -> Float64Array:
    """Sum of gamma^i delta_{t+i} to the end of the trajectory [n], or to where the log breaks off."""
    total = delta.copy()
    lengths = np.diff(offsets)
    for back in range(2, int(lengths.max(initial=0)) + 1):  # the row that is the back-th from its end
        rows = offsets[1:][lengths >= back] - back
        total[rows] += gamma * total[rows + 1] * usable[rows]
    return total


def _moments(states: StateMap, followed: float, weights: Float64Array) -> Float64Array:
    """Sum of rho phi (phi - gamma c phi')' [p, p] over the rows whose weight is not 0."""
    n, width = len(weights), len(states.penalty)
    chosen, total = np.flatnonzero(weights), np.zeros((width, width))
    scale, steps = weights.astype(np.float32)[:, None], states.steps
    factor = np.float32(-steps.gamma * (1 - 1 / followed))
    for first in range(0, len(chosen), BLOCK):
        rows = chosen[first : first + BLOCK]
        index = slice(rows[0], rows[-1] + 1) if len(chosen) == n else rows  # a slice copies nothing
        ahead = slice(rows[0] + 1, rows[-1] + 2) if len(chosen) == n else rows + 1
        phi, ends = states.phi[index], np.flatnonzero(steps.last[index])
        step = states.phi[ahead] * factor
        step[ends] = states.final[steps.trajectory[rows[ends]]] * factor
        step += phi
        total += (phi * scale[index]).T @ step
    return total


def _solved(states: StateMap, system: Float64Array, target: Float64Array) -> Float64Array:
    """Theta = M^-1 sum phi target."""
    right = (states.phi[:-1].T @ target.astype(np.float32)).astype(np.float64)
    theta: Float64Array = np.linalg.solve(system, right).astype(np.float64)
    return theta


def _negative_share(visits: Float64Array) -> float:
    """The share of visits that are negative, by absolute value."""
    total = float(np.abs(visits).sum())
    return float(-np.minimum(visits, 0.0).sum()) / total if total > 0 else 0.0
