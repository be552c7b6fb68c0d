r"""The states of a log in features phi: what mu brings from each, and what pi changes about the next one.

    V^mu(x) = phi'theta,     theta = (sum phi (phi - gamma phi')' + penalty)^-1 sum phi r

In sums phi' is phi of the next state. With the ratios rho = pi(a|x) / mu(a|x) of single steps, pi changes
the next state by

    K = sum (rho - 1) phi e',     e = phi' - B'phi,     B'phi what is expected under mu

E[rho - 1 | x] = 0, so subtracting B'phi, or any other function of the state, costs no bias and removes most
of the noise. Of each column of K, that is of each feature of the next state, only the part counts that chance
does not explain, a share of max(0, 1 - noise / square) (James and Stein). Where actions do not move a
feature, as the tastes of a user, pi then finds it as mu does, however large the ratios are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from shpi.data.logged import LoggedData
from shpi.features import Chain, FeatureMap, Powers, RandomFourier, Recipe, Standardise
from shpi.protocols import BoolArray, Float32Array, Float64Array, IntArray
from shpi.values._lstd.moments import with_intercept
from shpi.values.past import with_past

NARROW = 10  # up to so many dimensions random Fourier features, beyond it lines and squares
N_FOURIER = 100  # random Fourier features of each draw
RIDGE = 1e-3  # penalty, as a share of the Gram matrix's diagonal
TAIL = 3.0  # standard deviations at which the squares are cut
PREDICTIVE = 0.01  # share of the error of V^mu that past rewards must remove to be part of the state
MAP_ROWS = 50_000  # contexts that the features are fitted to
SQUARE_ROWS = 50_000  # decisions of each half that tell how large noise is
LEAST = 1e-30  # keeps divisions by nothing finite
BOTH = (0, 1)  # halves of the users
BLOCK = 2_048  # rows whose features stay in the cache


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """Who decides in a row, what it brought, and which state follows."""

    usable: BoolArray  # [n] reward and next context are known
    rewards: Float64Array  # [n] 0 where a row is not usable
    trajectory: IntArray  # [n]
    offsets: IntArray  # [N + 1]
    last: BoolArray  # [n] whether it is the last decision of its trajectory
    user: IntArray  # [n]
    users: int
    side: IntArray  # [users] the half of the users, 0 or 1: what one half teaches, the other judges
    half: IntArray  # [n] the same by row
    gamma: float

    @classmethod
    def of(cls, logs: LoggedData, usable: BoolArray, rewards: Float64Array, gamma: float, seed: int) -> Steps:
        """Those of a log; the halves are drawn."""
        last = np.zeros(len(logs), dtype=bool)
        last[logs.offsets[1:] - 1] = True
        user = logs.user_codes[logs.trajectory_of_row]
        side = np.random.default_rng(seed).permutation(logs.n_users) % 2
        return cls(
            usable=usable,
            rewards=rewards,
            trajectory=logs.trajectory_of_row,
            offsets=logs.offsets,
            last=last,
            user=user,
            users=logs.n_users,
            side=side,
            half=side[user],
            gamma=gamma,
        )

    def summed(self, delta: Float64Array) -> Float64Array:
        """Sum of gamma^i delta_{t+i} to the end of the trajectory [n], or to where the log breaks off."""
        total, lengths = delta.copy(), np.diff(self.offsets)
        for back in range(2, int(lengths.max(initial=0)) + 1):  # the row that is the back-th from its end
            rows = self.offsets[1:][lengths >= back] - back
            total[rows] += self.gamma * total[rows + 1] * self.usable[rows]
        return total

    def by_user(self, values: Float64Array) -> Float64Array:
        """The sum of a number of every row, per user."""
        return np.bincount(self.user, weights=values, minlength=self.users).astype(np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """Phi of all states, in single precision, and how unexpected the next state is."""

    features: FeatureMap
    phi: Float32Array  # [n, p]
    final: Float32Array  # [N, p] after the last decision; 0 after a termination
    steps: Steps
    usual: Float64Array  # mean past rewards; empty where they are no part of the state
    penalty: Float64Array  # [p]
    under_mu: Float64Array  # [2, 2, p, p] sums of phi phi' and of phi phi'' over each half
    unexpected: Float32Array  # [n, p] e = phi' - B'phi; 0 where the log does not say what followed
    spread: Float64Array  # [p] the mean square of e

    @classmethod
    def of(cls, wide: LoggedData, features: FeatureMap, steps: Steps, width: int) -> Columns:
        """Phi of the contexts of a log, by blocks; past rewards follow their first ``width`` columns."""
        phi = np.empty((len(wide), 1 + features.width), dtype=np.float32)
        for first in range(0, len(wide), BLOCK):
            rows = slice(first, min(first + BLOCK, len(wide)))
            phi[rows] = with_intercept(features, wide.contexts[rows], np.float32)
        final = with_intercept(features, wide.final_contexts, np.float32).astype(np.float32, copy=False)
        final[wide.terminated] = 0.0
        ahead = np.empty_like(phi)
        ahead[:-1] = phi[1:]
        ahead[steps.last] = final
        ahead[~steps.usable] = 0.0
        ones, halves = np.ones(len(phi)), [np.flatnonzero(steps.usable & (steps.half == h)) for h in (0, 1)]
        under_mu = np.array([[_product(phi, u, ones, rows) for u in (phi, ahead)] for rows in halves])
        here, moved = under_mu.sum(axis=0)
        penalty = RIDGE * np.einsum("np,np->p", phi, phi, dtype=np.float64) + 1e-9 * len(phi)
        penalty[0] = 1e-9 * len(phi)
        carry = solved(here + np.diag(penalty), moved).astype(np.float32)
        for first in range(0, len(wide), BLOCK):
            rows = slice(first, min(first + BLOCK, len(wide)))
            ahead[rows] -= (phi[rows] @ carry) * steps.usable[rows, None]
        squares: Float64Array = np.einsum("np,np->p", ahead, ahead, dtype=np.float64)
        return cls(
            features=features,
            phi=phi,
            final=final,
            steps=steps,
            usual=wide.contexts[:, width:].mean(axis=0, dtype=np.float64),
            penalty=penalty,
            under_mu=under_mu,
            unexpected=ahead,
            spread=squares / max(int(steps.usable.sum()), 1),
        )

    def changes(self, weights: Float64Array) -> Float64Array:
        """Sums of w^2 phi phi' and of w phi e' over each half, [2, 2, p, p].

        The first only tells how large noise is: some rows do, weighted to the sum of w^2 over all.
        """
        width, steps = self.phi.shape[1], self.steps
        total = np.zeros((2, 2, width, width))
        for half in (0, 1):
            rows = np.flatnonzero(steps.usable & (steps.half == half) & (weights != 0))
            some = rows[:: 1 + len(rows) // SQUARE_ROWS]
            square = _product(self.phi, self.phi, weights**2, some)
            total[half, 0] = square * (np.sum(weights[rows] ** 2) / max(np.sum(weights[some] ** 2), LEAST))
            total[half, 1] = _product(self.phi, self.unexpected, weights, rows)
        return total


def _product(left: Float32Array, right: Float32Array, weights: Float64Array, rows: IntArray) -> Float64Array:
    """The sum of w left right' over some rows [p, p]."""
    total, scale = np.zeros((left.shape[1], right.shape[1])), weights.astype(np.float32)
    for first in range(0, len(rows), BLOCK):
        block = rows[first : first + BLOCK]
        total += (left[block] * scale[block, None]).T @ right[block]
    return total


@dataclass(frozen=True, kw_only=True, eq=False)
class Moved:
    """What pi changes about the next state, and its advantages, as far as the log shows it."""

    system: Float64Array  # [p, p] sum phi (phi - gamma c phi')' under pi, and the penalty
    kept: Float64Array  # [p] the share of the change of each feature that chance does not explain
    target: Float64Array  # [n] (rho - 1) (A - phi'b): an estimate of E_{a ~ pi} A^mu(x, a)


@dataclass(frozen=True, kw_only=True, eq=False)
class StateMap:
    """One set of features, and V^mu in it.

    Each half of the users has a V^mu of its own. f, which the other half has learned with its V^mu, then has
    no noise in common with the advantages by which it is judged.
    """

    columns: Columns
    steps: Steps
    phi: Float32Array  # [n, p] of the logged states
    penalty: Float64Array  # [p]
    starts: Float64Array  # [p] mean phi of the first decisions, per user
    delta: Float64Array  # [n] of the half's own V^mu; 0 where the log does not say what followed
    surprise: Float64Array  # [n] the discounted return from here on, less V^mu
    by_user: Float64Array  # [users, p] sum of phi delta

    @classmethod
    def of(cls, columns: Columns, width: int | None = None) -> StateMap:
        """Estimate V^mu in the first columns, or in all."""
        steps, none, phi = columns.steps, np.zeros(0), columns.phi[:, :width]
        states = cls(
            columns=columns,
            steps=steps,
            phi=phi,
            penalty=columns.penalty[:width],
            starts=phi[steps.offsets[:-1]].sum(axis=0, dtype=np.float64) / steps.users,
            delta=none,
            surprise=none,
            by_user=none,
        )
        of_half = [states.residual(states.value((side,))) for side in (0, 1)]
        delta = np.where(steps.half == 0, *of_half)
        entries = delta.astype(np.float32), (steps.user, np.arange(len(phi)))
        rows = sparse.csr_matrix(entries, (steps.users, len(phi)))
        return replace(
            states,
            delta=delta,
            surprise=steps.summed(delta),
            by_user=np.asarray(rows @ phi, dtype=np.float64),
        )

    def value(self, sides: Sequence[int]) -> Float64Array:
        """Theta of V^mu, learned from one half or both."""
        keep = self.steps.usable & np.isin(self.steps.half, sides)
        return solved(self.system(sides, 1.0), self.sum_of(np.where(keep, self.steps.rewards, 0.0)))

    def system(self, sides: Sequence[int], c: float, more: Float64Array | float = 0.0) -> Float64Array:
        """Sum phi (phi - gamma c phi')' [p, p] and the penalty; ``more`` is what pi adds to sum phi phi''."""
        p = len(self.penalty)
        here, ahead = self.columns.under_mu[list(sides), :, :p, :p].sum(axis=0)
        total: Float64Array = here - self.steps.gamma * c * (ahead + more) + np.diag(self.penalty)
        return total

    def residual(self, theta: Float64Array) -> Float64Array:
        """Delta = r + gamma V(x') - V(x) [n]; 0 where the log does not say what followed."""
        (here,) = self.at_rows(theta)
        change = here - self.steps.gamma * self.ahead(here, theta)
        return np.where(self.steps.usable, self.steps.rewards - change, 0.0)

    def held_out_error(self) -> float:
        """The squared error of V^mu as a forecast of the returns of the half that did not teach it."""
        total = 0.0
        for side in (0, 1):
            error = self.steps.summed(self.residual(self.value((1 - side,))))
            total += float(np.sum(error[self.steps.half == side] ** 2))
        return total

    def moved(
        self,
        weights: Float64Array,
        sums: Float64Array,
        sides: Sequence[int],
        c: float,
        advantage: Float64Array,
    ) -> Moved:
        """What pi does, from weights rho - 1 [n] and their `Columns.changes`; A^mu of every row is given."""
        p, rows = len(self.penalty), np.isin(self.steps.half, sides)
        here, _ = self.columns.under_mu[list(sides), :, :p, :p].sum(axis=0)
        square, change = sums[list(sides), :, :p, :p].sum(axis=0)
        gram = here + np.diag(self.penalty)
        # Of each feature's change, the share that chance does not explain.
        size = np.einsum("ij,ij->j", change, solved(gram, change))
        noise = float(np.trace(solved(gram, square))) * self.columns.spread[:p]
        kept = np.maximum(0.0, 1 - np.divide(noise, size, out=np.ones(p), where=size > 0))
        # phi'b [n]: without it, weights times advantages have the least noise.
        some = np.where(rows, weights, 0.0)
        heavy = some**2
        usual = float(np.square(heavy).sum()) / max(float(heavy.sum()), LEAST)  # a weight that matters
        ridge = p * usual * np.diag(gram) / max(int((rows & self.steps.usable).sum()), 1) + LEAST
        (expected,) = self.at_rows(solved(square + np.diag(ridge), self.sum_of(heavy * advantage)))
        system = self.system(sides, c, change * kept)
        return Moved(system=system, kept=kept, target=some * (advantage - expected))

    def at_rows(self, *thetas: Float64Array) -> Float64Array:
        """The products phi'theta at the logged states, [m, n] for m thetas, in single precision."""
        columns = np.stack(thetas, axis=1).astype(np.float32)
        return np.ascontiguousarray((self.phi @ columns).T, dtype=np.float64)

    def at_ends(self, theta: Float64Array) -> Float64Array:
        """The same after the last decisions [N]."""
        return (self.columns.final[:, : len(theta)] @ theta.astype(np.float32)).astype(np.float64)

    def ahead(self, here: Float64Array, theta: Float64Array) -> Float64Array:
        """The product at the next states [n], where that at the states is known; 0 where there is none."""
        following = np.append(here[1:], 0.0)
        following[self.steps.last] = self.at_ends(theta)
        return np.where(self.steps.usable, following, 0.0)

    def sum_of(self, values: Float64Array) -> Float64Array:
        """Sum of phi times a number of every row [p]."""
        return (self.phi.T @ values.astype(np.float32)).astype(np.float64)

    def error_of_value(self, weights: Float64Array) -> Float64Array:
        """Every user's part of the error that V^mu brings into the sum of weights times delta [users]."""
        steps, width = self.steps, len(self.penalty)
        mine = np.where(steps.half[:, None] == BOTH, weights[:, None], 0.0).astype(np.float32)  # [n, 2]
        passed = np.float32(steps.gamma) * mine
        ends = self.columns.final[:, :width].T @ passed[steps.last]
        passed[steps.last] = 0.0
        mine[1:] -= passed[:-1]
        changes = (self.phi.T @ mine - ends).astype(np.float64)  # [p, 2]
        parts = [self.by_user @ solved(self.system((side,), 1.0).T, changes[:, side]) for side in BOTH]
        return np.where(steps.side == 0, -parts[0], -parts[1])


def solved(system: Float64Array, right: Float64Array) -> Float64Array:
    """The solution of a linear system."""
    solution: Float64Array = np.linalg.solve(system, right).astype(np.float64)
    return solution


def described(logs: LoggedData, table: FeatureMap | None, steps: Steps, seed: int) -> tuple[StateMap, ...]:
    """The sets of features of a log: the table, if contexts are few; else two, whose difference is an error.

    Two draws of Fourier features where contexts are narrow; else lines, and lines with squares. Past rewards
    join the context where they help to forecast returns: then the context is not the whole state. Elsewhere
    they would only tell that pi, by earning more, is unlike anybody in the log.
    """
    if table is not None:
        return (StateMap.of(Columns.of(logs, table, steps, logs.schema.width)),)
    past = with_past(logs)

    def columns(wide: LoggedData, draw: int = 0, degree: int = 1) -> Columns:
        shape: Recipe = Powers(degree=degree, intercept=False, limit=TAIL)
        if wide.schema.width <= NARROW:
            shape = RandomFourier(n_features=N_FOURIER, intercept=False, seed=seed + draw)
        features = Chain((Standardise(), shape)).fit(wide.contexts[:: 1 + len(wide) // MAP_ROWS])
        return Columns.of(wide, features, steps, logs.schema.width)

    wide, first, widened = logs, StateMap.of(columns(logs)), StateMap.of(columns(past))
    if widened.held_out_error() < (1 - PREDICTIVE) * first.held_out_error():
        wide, first = past, widened
    del widened  # a large log has no room for a set that is not used
    if wide.schema.width <= NARROW:
        return first, StateMap.of(columns(wide, draw=1))
    del first
    squared = columns(wide, degree=2)
    return StateMap.of(squared, 1 + wide.schema.width), StateMap.of(squared)
