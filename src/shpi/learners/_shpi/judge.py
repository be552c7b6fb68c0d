r"""The one test: the lift of a policy over mu, estimated from mu's log, with every user's influence on it.

    D(x) = V^pi(x) - V^mu(x)   solves   D = E_{a ~ pi}[ delta + gamma c D(x') | x ]
    delta = r + gamma V^mu(x') - V^mu(x)

by least squares over features phi of the state, with the ratios rho = pi(a|x) / mu(a|x) of single steps:

    theta = M^-1 sum rho phi delta,    M = sum rho phi (phi - gamma c phi')' + penalty,    lift = mean D(x_0)

c = 1 - 1/50: pi is followed for about 50 decisions, then mu's value is paid. That is SHPI's own trade: a
bias of known form, for a system that stays well-conditioned where pi is far from mu. The printed bound
follows pi for 10 decisions only, since states that pi reaches later may lie outside the log. The penalty is
a share of sum rho^2 phi^2, the noise of M: where ratios are large, D is drawn towards one number for all
states, as if pi met the states that mu meets. V^mu also looks at what a user has brought before
(`with_past`); D does not, since a better policy leads out of the log there by its very success.

A user's influence is that user's term of the linearised error of the lift, the estimate of V^mu included, so
two policies can be compared on common users. Two sets of features give two lifts; their difference counts as
error too.

The same system gives the density ratio d_pi / d_mu at every decision ("visits"). Where pi goes to states that
the log does not contain, the features extrapolate, and visits come out negative. Noise makes some negative
too, so one half of the users says where they are negative, and the other half how much. If that is a share s,
beyond mu's own, then 2 s of the lift rests on extrapolation and counts as error.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

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
RIDGE = 1e-3  # penalty, as a share of sum rho^2 phi^2
TAIL = 3.0  # standard deviations at which the squares are cut
MAP_ROWS = 50_000  # contexts that the features are fitted to
LEAST = 1e-6  # a smaller ratio counts as 0: it adds nothing, and its rows are left out
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


class Sums(NamedTuple):
    """Sum of rho phi (phi - gamma c phi')' [p, p] and of rho^2 phi^2 [p] over some rows."""

    matrix: Float64Array
    squares: Float64Array
    rows: int

    def plus(self, other: Sums) -> Sums:
        """The sums over both."""
        return Sums(self.matrix + other.matrix, self.squares + other.squares, self.rows + other.rows)

    def system(self, width: int) -> Float64Array:
        """M of the first features; the intercept is not penalised."""
        least = 1e-9 * max(self.rows, 1)
        penalty = RIDGE * self.squares[:width] + least
        penalty[0] = least
        system: Float64Array = self.matrix[:width, :width] + np.diag(penalty)
        return system


@dataclass(frozen=True, kw_only=True, eq=False)
class States:
    """The states of the log in one set of features."""

    logs: LoggedData
    gamma: float
    features: FeatureMap
    phi: Float32Array  # [n + 1, p]; the last row says nothing
    final: Float32Array  # [N, p] after the last decision; 0 after a termination

    @classmethod
    def of(cls, logs: LoggedData, gamma: float, features: FeatureMap) -> States:
        """Transform all contexts."""
        phi = np.zeros((len(logs) + 1, 1 + features.width), dtype=np.float32)
        for first in range(0, len(logs), BLOCK):
            rows = slice(first, min(first + BLOCK, len(logs)))
            phi[rows] = with_intercept(features, logs.contexts[rows], np.float32)
        final = with_intercept(features, logs.final_contexts, np.float32).astype(np.float32, copy=False)
        final[logs.terminated] = 0.0
        return cls(logs=logs, gamma=gamma, features=features, phi=phi, final=final)

    def starts(self) -> Float64Array:
        """Mean of phi at the first decisions, per user [p]."""
        mean: Float64Array = (
            self.phi[self.logs.offsets[:-1]].sum(axis=0, dtype=np.float64) / self.logs.n_users
        )
        return mean

    def at_rows(self, *thetas: Float64Array) -> Float64Array:
        """The products phi'theta at the logged states, [m, n] for m thetas, in single precision.

        A theta may be shorter than phi: it is that of the first columns.
        """
        columns = np.zeros((max(map(len, thetas)), len(thetas)), dtype=np.float32)
        for column, theta in zip(columns.T, thetas, strict=True):
            column[: len(theta)] = theta
        return np.ascontiguousarray((self.phi[:-1, : len(columns)] @ columns).T, dtype=np.float64)

    def at_ends(self, theta: Float64Array) -> Float64Array:
        """The same after the last decisions [N]."""
        return (self.final[:, : len(theta)] @ theta.astype(np.float32)).astype(np.float64)

    def change(self, here: Float64Array, theta: Float64Array) -> Float64Array:
        """(phi - gamma phi')'theta [n], where phi'theta is known at the logged states."""
        ahead = np.append(here[1:], 0.0)
        ahead[self.logs.offsets[1:] - 1] = self.at_ends(theta)
        return here - self.gamma * ahead

    def sums_of_changes(self, weights: Float64Array) -> Float64Array:
        """Sums of weights (phi - gamma phi') [m, p], for weights [m, n] that are 0 at unusable rows."""
        last = self.logs.offsets[1:] - 1
        passed = self.gamma * weights
        ends = passed[:, last].astype(np.float32)
        passed[:, last] = 0.0
        own = weights.astype(np.float32)
        own[:, 1:] -= passed[:, :-1]
        return (own @ self.phi[:-1] - ends @ self.final).astype(np.float64)

    def sums(self, weights: Float64Array, followed: float, rows: slice) -> Sums:
        """The sums over those of the rows whose weight is not 0."""
        chosen, width = rows.start + np.flatnonzero(weights[rows]), self.phi.shape[1]
        matrix, squares = np.zeros((width, width)), np.zeros(width)
        scale = weights.astype(np.float32)[:, None]
        factor = np.float32(-self.gamma * (1 - 1 / followed))
        last = np.zeros(len(weights), dtype=bool)
        last[self.logs.offsets[1:] - 1] = True
        for first in range(0, len(chosen), BLOCK):
            index = chosen[first : first + BLOCK]
            whole = index[-1] - index[0] + 1 == len(index)  # a slice copies nothing
            here = slice(index[0], index[-1] + 1) if whole else index
            phi, ends = self.phi[here], np.flatnonzero(last[index])
            step = (self.phi[index[0] + 1 : index[-1] + 2] if whole else self.phi[index + 1]) * factor
            step[ends] = self.final[self.logs.trajectory_of_row[index[ends]]] * factor
            step += phi
            scaled = phi * scale[here]
            matrix += scaled.T @ step
            squares += np.einsum("np,np->p", scaled, scaled)
        return Sums(matrix, squares, rows.stop - rows.start)

    def right(self, target: Float64Array) -> Float64Array:
        """Sum of phi target [p]."""
        return (target.astype(np.float32) @ self.phi[:-1]).astype(np.float64)


class Visits(NamedTuple):
    """The density ratio d_pi / d_mu at every decision, in one set of features."""

    states: States
    system: Float64Array  # [p, p] M of all users
    rows: Float64Array  # [n] visits, up to a factor
    negative: float  # their negative share


@dataclass(frozen=True, kw_only=True, eq=False)
class Baseline:
    """V^mu, learned from all users or from one half."""

    states: States
    theta: Float64Array  # [p]
    system: Float64Array  # [p, p] that it solved


@dataclass(frozen=True, kw_only=True, eq=False)
class Judge:
    """Measures policies on one log, whose users come half by half."""

    logs: LoggedData
    sides: tuple[slice, slice, slice]  # rows of all users, of the second half, and of the first
    baselines: tuple[Baseline, ...]  # V^mu by side
    maps: tuple[
        tuple[States, tuple[int, ...]], ...
    ]  # for D; each number of first columns is a set of features
    rewards: Float64Array  # [n], in units of the largest
    unit: float
    usable: BoolArray  # [n] reward and next context are known
    user: IntArray  # [n]
    delta: Float64Array  # [n] of V^mu; 0 where the log does not say what followed
    surprise: Float64Array  # [n] the discounted return from here on, less V^mu
    by_user: Float64Array  # [users, p] sum of phi delta
    table: CellsMap | None  # the contexts, where they are few
    usual: Float64Array  # [2] the mean of what users had brought, beside the contexts; empty with a table
    realised: bool = False  # whether A^mu is taken from what followed, instead of V^mu at the next state
    _memo: dict[float, tuple[list[Visits], Float64Array, Float64Array]] = field(
        default_factory=dict, repr=False
    )  # `_of_mu` by ``followed``
    _last: dict[float, tuple[Float64Array, list[Visits]]] = field(default_factory=dict, repr=False)
    # the last ratios and their visits, by `followed`: two judges and a test ask for the first candidate

    @classmethod
    def of(cls, logs: LoggedData, *, gamma: float, seed: int, middle: int | None = None) -> Judge:
        """Fit the features and V^mu; the second half of the users begins at row ``middle``.

        Without it, the second half of the trajectories is meant.
        """
        if middle is None:
            middle = int(logs.offsets[logs.n_trajectories // 2])
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
        sides = (slice(0, len(logs)), slice(middle, len(logs)), slice(0, middle))
        table, usual = few_contexts(logs), np.zeros(0)
        if table is not None:
            states = States.of(logs, gamma, table)
            maps = [(states, (states.phi.shape[1],))]
        else:
            wide = with_past(logs)
            usual = wide.contexts[:, logs.schema.width :].mean(axis=0, dtype=np.float64)
            narrow = wide.schema.width <= NARROW
            drawn = [States.of(logs, gamma, phi) for phi in _features(logs, narrow, seed)]
            lines = () if narrow else (1 + logs.schema.width,)  # and lines with squares
            maps = [(states, (*lines, states.phi.shape[1])) for states in drawn]
            states = States.of(wide, gamma, _features(wide, narrow, seed)[-1])
        known = usable.astype(np.float64)
        halves = [states.sums(known, np.inf, rows) for rows in sides[1:]]
        baselines = []
        for sums, rows in zip((halves[0].plus(halves[1]), *halves), sides, strict=True):
            system = sums.system(states.phi.shape[1])
            target = np.zeros(len(logs))
            target[rows] = rewards[rows]
            theta = _solve(system, states.right(target))
            baselines.append(Baseline(states=states, theta=theta, system=system))
        theta = baselines[0].theta
        delta = np.where(usable, rewards - states.change(states.at_rows(theta)[0], theta), 0.0)
        by_row = sparse.csr_matrix(
            (delta.astype(np.float32), (user, np.arange(len(logs)))), (logs.n_users, len(logs))
        )
        return cls(
            logs=logs,
            sides=sides,
            baselines=tuple(baselines),
            maps=tuple(maps),
            rewards=rewards,
            unit=unit,
            usable=usable,
            user=user,
            delta=delta,
            surprise=_summed(delta, usable, logs.offsets, gamma),
            by_user=np.asarray(by_row @ states.phi[:-1], dtype=np.float64),
            table=table,
            usual=usual,
        )

    def lift(self, rho: FloatArray, followed: float = FOLLOWED) -> Influence:
        """The lift of the policy with these ratios pi(a_t|x_t) / mu(a_t|x_t) [n]."""
        weights = np.where(self.usable & (rho > LEAST), rho, 0.0)
        if followed not in self._last or not np.array_equal(self._last[followed][0], weights):
            self._last[followed] = weights, self._visits(weights, followed)
        visits, (own, gains, more) = self._last[followed][1], self._of_mu(followed)
        lifts, parts = self._gains(visits, weights, followed)
        if not self.realised:  # features that D lacks and V^mu has give mu itself a small gain
            lifts, parts = lifts - gains, parts - more
        beyond = np.array([max(v.negative - mu.negative, 0.0) for v, mu in zip(visits, own, strict=True)])
        return Influence(
            lifts=self.unit * lifts, parts=self.unit * parts, off_log=self.unit * 2 * beyond * lifts
        )

    def _gains(
        self, visits: list[Visits], weights: Float64Array, followed: float
    ) -> tuple[Float64Array, Float64Array]:
        """Mean D(x_0) by set of features [m], and every user's part of its error [m, users]."""
        target = weights * self.delta  # [n] each row's estimate of E_{a ~ pi} A^mu(x, a)
        if self.realised:
            target = np.where(self.usable, weights - 1.0, 0.0) * self.surprise
        starts, parts, users = [], [], self.logs.n_users
        for states, _ in self.maps:
            mine, right = [v for v in visits if v.states is states], states.right(target)
            thetas = [_solve(v.system, right[: len(v.system)]) for v in mine]
            for theta, here, visit in zip(thetas, states.at_rows(*thetas), mine, strict=True):
                change = np.where(self.usable, states.change(here, theta), 0.0) * (1 - 1 / followed)
                residual = target - weights * (here / followed + change)
                parts.append(np.bincount(self.user, visit.rows * residual, users))
                starts.append(np.bincount(self.logs.user_codes, here[self.logs.offsets[:-1]], users))
        by_user: Float64Array = np.stack(parts).astype(np.float64)
        if not self.realised:  # the error of V^mu; beside what followed it is the same for pi and mu
            value = self.baselines[0]
            changes = value.states.sums_of_changes(np.stack([v.rows for v in visits]) * weights)
            by_user -= _solve(value.system.T, changes.T).T @ self.by_user.T
        first = np.stack(starts)
        gains: Float64Array = first.mean(axis=1)
        return gains, by_user + (first - gains[:, None]) / users

    def _visits(self, weights: Float64Array, followed: float) -> list[Visits]:
        """Visits by set of features, for ratios [n] that are 0 off the log."""
        visits: list[Visits] = []
        for states, widths in self.maps:
            second, first = (states.sums(weights, followed, rows) for rows in self.sides[1:])
            sums = (second.plus(first), second, first)
            systems = [s.system(width) for width in widths for s in sums]
            starts = states.starts()
            solved = [_solve(system.T, starts[: len(system)]) for system in systems]
            rows = states.at_rows(*solved)
            visits += [
                Visits(states, systems[i], rows[i], _negative_share(*rows[i + 1 : i + 3, self.usable]))
                for i in range(0, len(systems), 3)
            ]
        return visits

    def _of_mu(self, followed: float) -> tuple[list[Visits], Float64Array, Float64Array]:
        """Visits and gains of mu itself: a negative share or a gain here is the features' own."""
        if followed not in self._memo:
            known = self.usable.astype(np.float64)
            visits = self._visits(known, followed)
            self._memo[followed] = visits, *replace(self, realised=False)._gains(visits, known, followed)
        return self._memo[followed]

    def gradient(self) -> Float64Array:
        """D lift / d log pi(a_t|x_t) at pi = mu, [n]: visits times the advantage of the taken action."""
        visits = np.mean([visits.rows for visits in self._of_mu(FOLLOWED)[0]], axis=0)
        gradient: Float64Array = self.unit * visits * (self.surprise if self.realised else self.delta)
        return gradient

    def value(self) -> FittedValue:
        """V^mu as a function of contexts."""
        baseline = self.baselines[0]
        linear = LinearValue(features=baseline.states.features, theta=self.unit * baseline.theta)
        return PastValue(value=linear, usual=self.usual) if self.table is None else linear

    def values(self, rho: Float64Array | None, side: int, followed: float = PROMISED) -> StateValues:
        """V of the policy with these ratios (None: of mu), as one side of the users has learned it."""
        states, theta = self.baselines[side].states, self.baselines[side].theta
        here, final = states.at_rows(theta)[0], states.at_ends(theta)
        if rho is not None:
            rows = self.sides[side]
            ratios = np.zeros(len(rho))
            ratios[rows] = np.where(self.usable[rows] & (rho[rows] > LEAST), rho[rows], 0.0)
            target = ratios * (self.rewards - states.change(here, theta))
            states, widths = self.maps[-1]
            system = states.sums(ratios, followed, rows).system(widths[-1])
            theta = _solve(system, states.right(target))
            here, final = here + states.at_rows(theta)[0], final + states.at_ends(theta)
        return StateValues(rows=self.unit * here, final=self.unit * final)


def _features(logs: LoggedData, narrow: bool, seed: int) -> list[FeatureMap]:
    """Two draws of random Fourier features for narrow contexts; else lines and squares."""
    shapes: list[Recipe] = [Powers(degree=2, intercept=False, limit=TAIL)]
    if narrow:
        shapes = [RandomFourier(n_features=N_FOURIER, intercept=False, seed=seed + i) for i in range(2)]
    sample = logs.contexts[:: 1 + len(logs) // MAP_ROWS]
    return [Chain((Standardise(), shape)).fit(sample) for shape in shapes]


def _summed(delta: Float64Array, usable: BoolArray, offsets: IntArray, gamma: float) -> Float64Array:
    """Sum of gamma^i delta_{t+i} to the end of the trajectory [n], or to where the log breaks off."""
    total = delta.copy()
    lengths = np.diff(offsets)
    for back in range(2, int(lengths.max(initial=0)) + 1):  # the row that is the back-th from its end
        rows = offsets[1:][lengths >= back] - back
        total[rows] += gamma * total[rows + 1] * usable[rows]
    return total


def _negative_share(one: Float64Array, other: Float64Array) -> float:
    """The negative share of visits: where, by one half of the users, and how much, by the other half."""
    below = max(-float(one[other < 0].sum() + other[one < 0].sum()), 0.0)
    total = float(one.sum() + other.sum()) + 2 * below
    return below / total if total > 0 else 0.0


def _solve(system: Float64Array, right: Float64Array) -> Float64Array:
    """M^-1 right, in double precision."""
    solved: Float64Array = np.linalg.solve(system, right).astype(np.float64, copy=False)
    return solved
