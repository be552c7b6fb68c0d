r"""Values over a finite horizon by linear backups, and how far each decision of the log moves them.

    theta_0 = 0,    theta_{h+1} = theta_r + gamma T theta_h,      Q_h(x, a) = phi(x, a)'theta_h

Q_h is the value with h decisions to go; at step t of a log with horizon H it is h = H - t. This is fitted Q
evaluation with ridge regression, in closed form: one factorisation, then H products of a matrix and a vector.
There is no fixed point, so gamma = 1 is as good as any.

A number that depends on the values, with gradients g_h = d number / d theta_h, moves with a decision i by

    nu_h = g_h + gamma T' nu_{h+1},        (adjoint, from h = H down to 1)
    sum_h nu_h'G_r^-1 phi_i (r_i - phi_i'theta_r) + gamma sum_h nu_h'G^-1 phi_i (psi_i - T'phi_i)'theta_{h-1}

(G_r and G are the Gram matrices behind theta_r and T.) The sum over h is taken once, into a vector and two
matrices, so it costs one quadratic form per decision, whatever H is.

Where few decisions carry a coefficient, their residuals may by chance be small. As for weighted means
(`shpi.ope.inference.steps`), the part of the rewards has a floor. With a_i the factor of decision i's
residual e_i,

    floor^2 = phi (sum_i a_i^2) (sum_i |a_i| e_i^2 / sum_i |a_i|)
    phi     = sum_u (sum_{i in u} e_i)^2 / sum_i e_i^2
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import linalg

from shpi.errors import DataError
from shpi.ope.inference.weighting import add_up
from shpi.ope.models.linear import Block, Design, ModelSums, blocks
from shpi.ope.problem import Chunk, Problem
from shpi.protocols import Float64Array, Int64Array

OWN_RIDGE = 3.0  # how strongly an action's own part is held back, counted in decisions
SHARED_RIDGE = 0.1  # the same for what all actions share, in decisions
_BOOSTS = (1.0, 10.0, 100.0, 1e3, 1e4)  # tried in turn until values stay possible


@dataclass(frozen=True, kw_only=True, eq=False)
class Backups:
    """theta_h for h = 0 .. H, and what the adjoint needs."""

    design: Design
    gamma: float
    theta: Float64Array  # [H + 1, p]
    reward: Float64Array  # [p] theta_r
    step: Float64Array  # [p, p] T
    reward_factor: Float64Array  # [p, p] inverse of G_r
    factor: Float64Array  # [p, p] inverse of G
    boost: float  # by how much the ridge had to be raised

    def tables(self, h: Int64Array | int) -> Float64Array:
        """The slopes of every action with h decisions to go, [A, d]; f(x)'slopes is Q_h(x, .)."""
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
    """The backups of one set of sums.

    Args:
        sums: over one fold (see `ModelSums.without`).
        design: the features.
        gamma: the discount.
        horizon: H.
        limits: the least and the largest possible value over the horizon. When the mean value at the start
            leaves them, backups explode, as off-policy regression can; the ridge is then raised.
        ridge: in decisions; None takes the defaults of this file.
    """
    reward_gram, moment = _assemble(design, sums.reward_gram[0], sums.reward[0])
    gram, cross = _assemble(design, sums.gram[0], sums.cross[0])
    start = sums.initial[0] / max(float(sums.initial[0, 0]), 1.0)  # the first feature is 1
    inverse_r = _inverse(reward_gram, design, sums.rows[0, 0], ridge, 1.0)
    theta_r = inverse_r @ moment
    span = limits[1] - limits[0]
    for boost in _BOOSTS:
        inverse = _inverse(gram, design, sums.rows[0, 1], ridge, boost)
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
                boost=boost,
            )
    raise DataError(
        expected=f"a value between {limits[0]:.4g} and {limits[1]:.4g}, which is what rewards allow",
        found="backups that explode: the log does not cover where the policy goes",
        remedy="use simpler features, a larger ridge, or an estimator without a model",
    )


def _assemble(design: Design, gram: Float64Array, cross: Float64Array) -> tuple[Float64Array, Float64Array]:
    """From sums by action to sums over phi = m_a (x) f: [p, p], and [p] or [p, p]."""
    m, p = design.codes, design.p
    q = m.shape[1]
    whole = np.einsum("aq,ar,ade->qdre", m, m, gram, optimize=True).reshape(p, p)
    return whole, np.einsum("aq,ad...->qd...", m, cross).reshape(p, *cross.shape[2:])[: q * design.d]


def _inverse(
    gram: Float64Array, design: Design, rows: float, ridge: float | None, boost: float
) -> Float64Array:
    """(G + penalty)^-1, where the penalty is worth so many decisions; the common intercept is free."""
    d, q = design.d, design.codes.shape[1]
    scale = float(np.trace(gram[:d, :d])) / max(d * rows, 1.0)
    own, shared = (OWN_RIDGE, SHARED_RIDGE) if ridge is None else (ridge, ridge)
    penalty = np.full((q, d), own * boost)
    penalty[0] = shared * boost
    diagonal = penalty.ravel() * (scale if scale > 0 else 1.0)
    diagonal[0] = 1e-9 * max(rows, 1.0)
    inverse: Float64Array = linalg.inv(gram + np.diag(diagonal), check_finite=False)
    return (inverse + inverse.T) / 2


# ---------------------------------------------------------------------- the adjoint


@dataclass(frozen=True, kw_only=True, eq=False)
class Adjoint:
    """What a decision's contribution is made of; adjoints of several fits add up."""

    reward: Float64Array  # [p] multiplies phi (r - phi'theta_r): the first factor
    reward_fit: Float64Array  # [p, p] sum of outer(reward, theta_r)
    ahead: Float64Array  # [p, p] phi' ahead psi
    here: Float64Array  # [p, p] phi' here phi, taken away

    def __add__(self, other: Adjoint) -> Adjoint:
        return Adjoint(**{name: value + getattr(other, name) for name, value in vars(self).items()})


def adjoint(fit: Backups, gradients: Float64Array) -> Adjoint:
    """From the gradients g_h [H + 1, p] to contributions; see the top of this file."""
    p, gamma = fit.design.p, fit.gamma
    nu, total, outer = np.zeros(p), np.zeros(p), np.zeros((p, p))
    for h in range(len(gradients) - 1, 0, -1):
        nu = gradients[h] + gamma * (fit.step.T @ nu)
        total += nu
        outer += np.outer(nu, fit.theta[h - 1])
    of_reward = fit.reward_factor @ total
    ahead = gamma * fit.factor @ outer
    return Adjoint(
        reward=of_reward,
        reward_fit=np.outer(of_reward, fit.reward),
        ahead=ahead,
        here=ahead @ fit.step.T,
    )


def contributions(
    problem: Problem, design: Design, by_fold: Iterable[Adjoint], *, rewards_only: bool = False
) -> Float64Array:
    """How far every user moves the number [U].

    The k-th adjoint is for the decisions of the users in fold k; one alone is for all. They are large, so
    they may be made one by one.
    """
    tables = [_by_action(design, adjoint_of_fold) for adjoint_of_fold in by_fold]
    if len(tables) == 1:
        tables *= problem.settings.folds
    asked = partial(
        _contributions_of, problem=problem, design=design, tables=tables, ahead=not rewards_only
    )
    by_user, floors = problem.by_user_and_total(asked)
    of_reward, of_step, residual = by_user
    squares, sizes, spread, plain = floors
    noise = float(np.sum((of_reward - of_reward.mean()) ** 2))
    if noise > 0 and sizes > 0 and plain > 0:
        floor = float(np.sum(residual**2)) / plain * squares * spread / sizes
        of_reward = of_reward * max(1.0, float(np.sqrt(floor / noise)))
    total: Float64Array = of_reward + of_step
    return total


def _contributions_of(
    chunk: Chunk, problem: Problem, design: Design, tables: Sequence[_ByAction], ahead: bool
) -> tuple[Float64Array, Float64Array]:
    """By user the parts of rewards and of steps, and the residuals, [3, users]; the sums of the floor [4]."""
    total, sums = np.zeros((3, chunk.logs.n_users)), np.zeros(4)
    for block in blocks(problem, chunk, design, ahead=ahead):
        fold = chunk.fold[block.rows]
        for k, table in enumerate(tables):
            rows = np.flatnonzero(fold == k)
            if len(rows):
                of_reward, of_step, slope = _of_rows(chunk, block, rows, table)
                used = slope != 0
                residual = np.where(used, of_reward, 0.0) / np.where(used, slope, 1.0)
                user = chunk.users[block.rows][rows]
                for j, values in enumerate((of_reward, of_step, residual)):
                    total[j] += add_up(user, values, chunk.logs.n_users)
                size = np.abs(slope)
                sums += (size @ size, size.sum(), size @ residual**2, residual @ residual)
    return total, sums


@dataclass(frozen=True, kw_only=True, eq=False)
class _ByAction:
    """An adjoint's matrices for the rows of one action each."""

    reward: Float64Array  # [A, d]
    reward_fit: Float64Array  # [A, d, d]
    ahead: Float64Array  # [A, d, p]
    here: Float64Array  # [A, d, d]


def _by_action(design: Design, adjoint: Adjoint) -> _ByAction:
    m, d = design.codes, design.d
    q, p = m.shape[1], design.p

    def left(matrix: Float64Array) -> Float64Array:
        blocks: Float64Array = np.einsum("aq,qdp->adp", m, matrix.reshape(q, d, p))
        return blocks

    def both(matrix: Float64Array) -> Float64Array:
        blocks: Float64Array = np.einsum("adre,ar->ade", left(matrix).reshape(-1, d, q, d), m)
        return blocks

    return _ByAction(
        reward=m @ adjoint.reward.reshape(q, d),
        reward_fit=both(adjoint.reward_fit),
        ahead=left(adjoint.ahead),
        here=both(adjoint.here),
    )


def _of_rows(
    chunk: Chunk, block: Block, rows: Int64Array, table: _ByAction
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """The parts of the reward and of the step, and the factor of the reward's residual, [b] each."""
    of_rewards, of_steps, slopes = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows))
    group = block.group[rows]
    observed, rewards = chunk.observed[block.rows][rows], chunk.rewards[block.rows][rows]
    known = block.known[rows]
    order = np.argsort(group, kind="stable")
    groups, first = np.unique(group[order], return_index=True)
    for a, mine in zip(groups, np.split(order, first[1:]), strict=True):
        f, ahead = block.here[rows[mine]], block.ahead[rows[mine]]
        slope = f @ table.reward[a]
        of_reward = slope * rewards[mine] - np.einsum("bd,bd->b", f @ table.reward_fit[a], f)
        of_rewards[mine] = np.where(observed[mine], of_reward, 0.0)
        slopes[mine] = np.where(observed[mine], slope, 0.0)
        if ahead.shape[1]:
            of_step = np.einsum("bp,bp->b", f @ table.ahead[a], ahead)
            of_step -= np.einsum("bd,bd->b", f @ table.here[a], f)
            of_steps[mine] = known[mine] * of_step
    return of_rewards, of_steps, slopes
