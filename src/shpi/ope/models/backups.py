r"""Finite-horizon values by linear backups, and the contribution of each logged decision to them.

    theta_0 = 0,    theta_{h+1} = theta_r + gamma T theta_h,      Q_h(x, a) = phi(x, a)'theta_h

Q_h is the value with h decisions to go; at step t of a log with horizon H, h = H - t. This is fitted Q
evaluation with ridge regression, in closed form: one factorisation, then H products of a matrix and a vector.
No fixed point is needed, so gamma = 1 is allowed.

To an estimate that depends on the values, with gradients g_h = d estimate / d theta_h, decision i contributes

    nu_h = g_h + gamma T' nu_{h+1},        (adjoint, from h = H down to 1)
    sum_h nu_h'G_r^-1 phi_i (r_i - phi_i'theta_r) + gamma sum_h nu_h'G^-1 phi_i (psi_i - T'phi_i)'theta_{h-1}

(G_r and G are the Gram matrices behind theta_r and T.) The sums over h are computed once, as a vector and two
matrices, so each decision costs one quadratic form, whatever H is.

If few decisions determine a coefficient, their residuals may be small by chance. As for weighted means
(`shpi.ope.inference.steps`), the variance of the rewards' part has a floor. With a_i the factor of decision
i's residual e_i,

    floor^2 = phi (sum_i a_i^2) (sum_i |a_i| e_i^2 / sum_i |a_i|)
    phi     = sum_u (sum_{i in u} e_i)^2 / sum_i e_i^2
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
from scipy import linalg

from shpi.errors import DataError
from shpi.ope.inference.weighting import add_up
from shpi.ope.models.linear import (
    Design,
    ModelSums,
    blocks,
    by_fold_and_action,
    one_follows,
    positions_of,
    products,
    sums_by_step,
)
from shpi.ope.problem import Chunk, Problem
from shpi.protocols import Float64Array, Int64Array

OWN_RIDGE = 3.0  # ridge penalty of the coefficients of single actions, in decisions
SHARED_RIDGE = 0.1  # ridge penalty of the coefficients that all actions share, in decisions
_ENTRIES = 3_000_000  # entries of the largest temporary matrix
_SHORT = 200_000  # entries of a temporary matrix that stays in the CPU cache
_RIDGE_FACTORS = (1.0, 10.0, 100.0, 1e3, 1e4)  # factors of the ridge, tried in turn until values are possible


@dataclass(frozen=True, kw_only=True, eq=False)
class Backups:
    """theta_h for h = 0 .. H, and the matrices that the adjoint needs."""

    design: Design
    gamma: float
    theta: Float64Array  # [H + 1, p]
    reward: Float64Array  # [p] theta_r
    step: Float64Array  # [p, p] T
    reward_factor: Float64Array  # [p, p] inverse of G_r
    factor: Float64Array  # [p, p] inverse of G
    ridge_factor: float  # factor by which the ridge was raised

    def tables(self, h: Int64Array | int) -> Float64Array:
        """The coefficients of every action with h decisions to go [A, d]: Q_h(x, a) = f(x)'coefficients_a."""
        table: Float64Array = self.design.codes @ self.theta[h].reshape(-1, self.design.d)
        return table


def fit_backups(
    sums: ModelSums,
    design: Design,
    *,
    gamma: float,
    horizon: int,
    limits: tuple[float, float],
    ridge: float | None = None,
) -> Backups:
    """Fit backups to one set of sums.

    Args:
        sums: sums over the decisions to fit (see `ModelSums.without`).
        design: features of contexts and codes of actions.
        gamma: discount factor.
        horizon: horizon H, in decisions.
        limits: smallest and largest possible value over the horizon. If the mean value at the start is far
            outside, backups diverge, as off-policy regression can; the ridge is then raised.
        ridge: ridge penalty, in decisions; None: the defaults of this file.
    """
    reward_gram, moment = sums.reward_gram[0], sums.reward[0]
    gram, cross = sums.gram[0], sums.cross[0]
    start = sums.initial[0] / max(float(sums.initial[0, 0]), 1.0)  # the first feature is 1
    inverse_r = _inverse(reward_gram, design, sums.rows[0, 0], ridge, 1.0)
    theta_r = inverse_r @ moment
    span = limits[1] - limits[0]
    for ridge_factor in _RIDGE_FACTORS:
        inverse = _inverse(gram, design, sums.rows[0, 1], ridge, ridge_factor)
        step = inverse @ cross
        theta = np.zeros((horizon + 1, design.p))
        with np.errstate(over="ignore", invalid="ignore"):
            for h in range(horizon):
                theta[h + 1] = theta_r + gamma * (step @ theta[h])
            value = float(start @ theta[-1])
        if np.isfinite(theta).all() and limits[0] - span <= value <= limits[1] + span:
            return Backups(
                design=design,
                gamma=gamma,
                theta=theta,
                reward=theta_r,
                step=step,
                reward_factor=inverse_r,
                factor=inverse,
                ridge_factor=ridge_factor,
            )
    raise DataError(
        expected=f"a value between {limits[0]:.4g} and {limits[1]:.4g}, which is what rewards allow",
        found="backups that explode: the log does not cover where the policy goes",
        remedy="use simpler features, a larger ridge, or an estimator without a model",
    )


def _inverse(
    gram: Float64Array, design: Design, rows: float, ridge: float | None, ridge_factor: float
) -> Float64Array:
    """(G + penalty)^-1, with the penalty in units of decisions; the common intercept is not penalised."""
    d, q = design.d, design.codes.shape[1]
    scale = float(np.trace(gram[:d, :d])) / max(d * rows, 1.0)
    own, shared = (OWN_RIDGE, SHARED_RIDGE) if ridge is None else (ridge, ridge)
    penalty = np.full((q, d), own * ridge_factor)
    penalty[0] = shared * ridge_factor
    diagonal = penalty.ravel() * (scale if scale > 0 else 1.0)
    diagonal[0] = 1e-9 * max(rows, 1.0)
    inverse: Float64Array = linalg.inv(gram + np.diag(diagonal), check_finite=False)
    return (inverse + inverse.T) / 2


# ---------------------------------------------------------------------- the adjoint


@dataclass(frozen=True, kw_only=True, eq=False)
class Adjoint:
    """A decision contributes reward'phi (r - phi'fitted) + phi'ahead psi - phi'here phi through one fit."""

    reward: Float64Array  # [p]
    fitted: Float64Array  # [p] theta_r
    ahead: Float64Array  # [p, p]
    here: Float64Array  # [p, p]


def adjoint(fit: Backups, gradients: Float64Array) -> Adjoint:
    """The adjoint of a fit for the gradients g_h [H + 1, p]; see the top of this file."""
    p, gamma, horizon = fit.design.p, fit.gamma, len(gradients) - 1
    nu = np.zeros((horizon + 1, p))
    last = np.zeros(p)
    for h in range(horizon, 0, -1):
        last = gradients[h] + gamma * (fit.step.T @ last)
        nu[h] = last
    ahead = gamma * fit.factor @ (nu[1:].T @ fit.theta[:horizon])
    return Adjoint(
        reward=fit.reward_factor @ nu.sum(axis=0), fitted=fit.reward, ahead=ahead, here=ahead @ fit.step.T
    )


def value_gradients(
    problem: Problem,
    chunk: Chunk,
    design: Design,
    slopes: Float64Array,
    *,
    start: float = 0.0,
    here: Float64Array | float = 0.0,
) -> Float64Array:
    """The derivative of an estimate by theta_h of every fold's fit, through the values V [K, H + 1, p].

    Args:
        problem: the evaluation problem.
        chunk: chunk of the log.
        design: features of contexts, and the target whose values V are.
        slopes: derivative by r_t + gamma V(x_{t+1}), by decision [n].
        start: derivative by V(x_0) of every trajectory.
        here: what to subtract: minus the derivative by V(x_t), by decision [n].
    """
    logs = chunk.logs
    coefficients = np.append(0.0, problem.gamma * slopes[:-1])
    coefficients[logs.offsets[:-1]] = start
    by_step = sums_by_step(chunk, design, coefficients - here, problem)[:, ::-1]  # H - t to go at step t
    gradients = np.pad(by_step, ((0, 0), (1, 0), (0, 0)))
    lengths = np.diff(logs.offsets)
    final = np.flatnonzero(~logs.terminated & logs.final_observed & (lengths < problem.horizon))
    codes = np.ones((len(final), 1)) if design.target == "state" else chunk.final_probs[final] @ design.codes
    psi = products(codes, design.of(logs.final_contexts[final]))
    psi = psi * (problem.gamma * slopes[logs.offsets[1:][final] - 1])[:, None]
    np.add.at(gradients, (chunk.fold_of_user[logs.user_codes[final]], problem.horizon - lengths[final]), psi)
    return gradients


def contributions(
    problem: Problem, design: Design, adjoints: Sequence[Adjoint], *, rewards_only: bool = False
) -> Float64Array:
    """The contribution of every user to the estimate [U].

    The k-th adjoint is of the fit to all users except those of fold k; a single adjoint is of a fit to all.
    """
    by_user, floors = problem.by_user(
        partial(_contributions_of, problem=problem, design=design, adjoints=adjoints, ahead=not rewards_only),
        and_total=True,
    )
    of_reward, of_step = by_user
    squares, sizes, spread, plain, of_users = floors
    noise = float(np.sum((of_reward - of_reward.mean()) ** 2))
    if noise > 0 and sizes > 0 and plain > 0:
        floor = of_users / plain * squares * spread / sizes
        of_reward = of_reward * max(1.0, float(np.sqrt(floor / noise)))
    total: Float64Array = of_reward + of_step
    return total


def _contributions_of(
    chunk: Chunk, problem: Problem, design: Design, adjoints: Sequence[Adjoint], ahead: bool
) -> tuple[Float64Array, Float64Array]:
    """Per user, the contributions of rewards and of transitions [2, users]; the sums for the floor [5]."""
    users = chunk.logs.n_users
    of_reward, slope = _reward_parts(chunk, design, adjoints)
    used = slope != 0
    residual = np.where(used, of_reward, 0.0) / np.where(used, slope, 1.0)
    of_step = np.zeros(users)
    if ahead:
        # For each fold, the sum over the fits that use its users; a single entry if there is one fit to all.
        kept = [[fit for fit in adjoints if fit is not out] or [out] for out in adjoints]
        through = [
            (reduce(np.add, [fit.ahead for fit in fits]), reduce(np.add, [fit.here for fit in fits]))
            for fits in kept
        ]
        of_step = (_steps_by_row if design.dense else _steps_by_action)(problem, chunk, design, through)
    size = np.abs(slope)
    of_users = add_up(chunk.users, residual, users)
    sums = [size @ size, size.sum(), size @ residual**2, residual @ residual, of_users @ of_users]
    return np.stack([add_up(chunk.users, of_reward, users), of_step]), np.array(sums)


def _reward_parts(
    chunk: Chunk, design: Design, adjoints: Sequence[Adjoint]
) -> tuple[Float64Array, Float64Array]:
    """The contribution of each reward, and the factor of its residual [n]; 0 where the reward is unknown."""
    n, fits = len(chunk.logs), len(adjoints)
    tables = np.concatenate([[part.reward for part in adjoints], [part.fitted for part in adjoints]])
    by_code = tables.reshape(2 * fits, -1, design.d)  # [2 J, q, d]
    both = np.empty((n, 2 * fits))
    # Products with short codes should stay in the CPU cache; grouping by action needs long blocks.
    short = _SHORT // (design.d + by_code[..., 0].size)
    size = max(short if design.dense else _ENTRIES // (design.d + 4 * len(design.codes)), 64)
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        f, group = design.rows_of(chunk, rows), design.group(chunk, rows)
        if design.dense:
            products_of_codes = (f @ by_code.reshape(-1, design.d).T).reshape(len(f), 2 * fits, -1)
            both[rows] = np.einsum("bjq,bq->bj", products_of_codes, design.codes[group])
        else:
            by_action = np.einsum("aq,jqd->adj", design.codes, by_code)
            for a, mine in positions_of(group):
                both[start + mine] = f[mine] @ by_action[a]
    slopes, values = both[:, :fits], both[:, fits:]
    slopes[~chunk.observed] = 0.0
    if fits > 1:
        slopes[np.arange(n), chunk.fold] = 0.0
    return np.einsum("nj,nj->n", slopes, chunk.rewards[:, None] - values), slopes.sum(axis=1)


Through = Sequence[tuple[Float64Array, Float64Array]]  # (ahead, here) [p, p] per fold, or one for all folds


def _steps_by_row(problem: Problem, chunk: Chunk, design: Design, through: Through) -> Float64Array:
    """The contributions of transitions per user [users], row by row, for short codes."""
    total = np.zeros(chunk.logs.n_users)
    matrices = [[matrix.reshape(design.p, design.p) for matrix in both] for both in through]
    for block in blocks(problem, chunk, design):
        of_step = np.empty(len(block.here))
        folds: Iterable[tuple[int, Any]] = [(0, slice(None))]
        if len(through) > 1:
            folds = positions_of(chunk.fold[block.rows])
        for k, mine in folds:
            phi = products(design.codes[block.group[mine]], block.here[mine])
            psi = products(block.code[mine], block.after[mine])
            ahead, here = matrices[k]
            of_step[mine] = np.einsum("bp,bp->b", phi @ ahead, psi) - np.einsum("bp,bp->b", phi @ here, phi)
        total += add_up(chunk.users[block.rows], block.known * of_step, chunk.logs.n_users)
    return total


def _steps_by_action(problem: Problem, chunk: Chunk, design: Design, through: Through) -> Float64Array:
    """The contributions of transitions per user [users], grouped by action, for long codes."""
    m, d, q, alone = design.codes, design.d, design.codes.shape[1], len(through) == 1
    by_code = [[matrix.reshape(q, d, q, d) for matrix in both] for both in through]
    formula, codes = ("aq,br,qdre->abde", (m, m)) if one_follows(chunk, design) else ("aq,qdre->adre", (m,))
    aheads = np.stack([np.einsum(formula, *codes, ahead, optimize=True) for ahead, _ in by_code])
    heres = [np.einsum("aq,ar,qdre->ade", m, m, here, optimize=True) for _, here in by_code]
    total = np.zeros(chunk.logs.n_users)
    for block in blocks(problem, chunk, design):
        of_step = np.empty(len(block.here))
        for k, a, mine in by_fold_and_action(chunk, block, design, alone=alone):
            f, after = block.here[mine], block.after[mine]
            of_step[mine] = -np.einsum("bd,bd->b", f @ heres[k][a], f)
            if block.following is None:
                by_both = (f @ aheads[k, a].reshape(d, q * d)).reshape(len(mine), q, d)
                values = np.einsum("bqd,bd->bq", by_both, after)  # stacked matmul takes twice as long
                of_step[mine] += np.einsum("bq,bq->b", values, block.code[mine])
        if block.following is not None:
            fold, pairs = 0 if alone else chunk.fold[block.rows] * len(m), aheads.reshape(-1, d, d)
            for key, mine in positions_of((fold + block.group) * len(m) + block.following):
                of_step[mine] += np.einsum("bd,bd->b", block.here[mine] @ pairs[key], block.after[mine])
        total += add_up(chunk.users[block.rows], block.known * of_step, chunk.logs.n_users)
    return total
