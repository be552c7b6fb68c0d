r"""Marginalised importance sampling: one density ratio of contexts instead of a product over the past.

    w(x) = d_pi(x) / d_mu(x)        d(x) = (1-gamma) sum_t gamma^t P_t(x)         closed form, `shpi.shift`
    J = B R,   R = sum_i beta_i w(x_i) rho_i r_i / sum_i beta_i w(x_i) rho_i,   beta_i = b_i gamma^t / U

with B = sum_i beta_i, the discounted decisions per user. If users terminate, pi may change how long they
stay: then B is that of pi, sum_i beta_i w(x_i), with w before normalisation.

The variance does not grow with the horizon. The price: w is a linear fit, and a wrong w is a bias that more
users do not remove; and w is defined for an infinite discounted horizon, while J stops at H. That is harmless
if gamma^H is small; if it is not, a note says so. For gamma = 1 the ratio uses 1 - 1/H instead. pi = mu gives
exactly J(mu), because d_pi and d_mu are fitted in the same way.

The influences treat w as known. In the coverage benchmark this made little difference where w was right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from shpi.errors import DataError
from shpi.features import FeatureMap, Recipe
from shpi.features.defaults import curves
from shpi.ope.estimators.base import finish
from shpi.ope.estimators.baseline import on_policy
from shpi.ope.inference.steps import summary
from shpi.ope.inference.weighting import add_up
from shpi.ope.models.linear import Design, blocks
from shpi.ope.models.recipes import make_design
from shpi.ope.problem import Chunk, Problem
from shpi.ope.results import Estimate
from shpi.protocols import Float64Array
from shpi.shift.linear import RatioSums

_BLOCK = 2000  # decisions per matrix product
_FLOOR = 0.05  # smallest d_mu in the denominator, as a share of the mean of d_mu
_LEAST = 1e-6  # smallest acceptable mean of the fitted d_mu; about 1 for a good fit
_LONG = 0.05  # a larger gamma^H is reported in a note


@dataclass(frozen=True, kw_only=True)
class MIS:
    """Marginalised importance sampling with a closed-form state ratio.

    Args:
        features: features of a context, for the density ratio; an intercept is added. None: 100 random
            Fourier features of the standardised contexts.
        name: name of the estimator.
    """

    features: Recipe | FeatureMap | None = None
    name: str = "MIS"

    def estimate(self, problem: Problem) -> Estimate:
        """See the top of this file."""
        gamma = problem.gamma if problem.gamma < 1 else 1 - 1 / max(problem.horizon, 2)
        ratio = _Ratio.of(problem, gamma, self.features)
        of_pi, of_mu = problem.by_user(ratio.sums_by_user)  # [4, U] each
        value, influence = _total(problem, of_pi)
        itself, own = _total(problem, of_mu)
        base = on_policy(problem)
        notes = [f"{ratio.negative:.1%} of the state weights came out negative and count 0"]
        if problem.gamma < 1 and problem.gamma**problem.horizon > _LONG:
            left = problem.gamma**problem.horizon
            notes.append(f"gamma^H is {left:.2f}: the ratio looks further ahead than the horizon")
        weight = of_pi[1]
        effective = float(weight.sum() ** 2 / np.sum(weight**2))
        return finish(
            self.name,
            problem,
            base.value + value - itself,
            base.influence + influence - own,
            summary(weight / weight.sum(), float(weight.sum() / of_mu[1].sum()), effective),
            tuple(notes),
        )


def _total(problem: Problem, sums: Float64Array) -> tuple[float, Float64Array]:
    """B R and its influences [U], from per-user sums; see the top of this file."""
    top, below, mass, count = sums
    if not below.sum() > 0:
        raise DataError(
            expected="some logged decision that the policy could have made",
            found="none: every importance weight is 0",
            remedy="the log has no support for this policy; evaluate one that shares actions with it",
        )
    rate, users, length = float(top.sum() / below.sum()), problem.users, float(problem.discounts.sum())
    total, level = problem.per_user * length, (count - problem.per_user) * length
    if problem.any_terminated:
        total = float(mass.sum())
        level = mass * users - total
    pull = users * total / float(below.sum()) * (top - rate * below)
    # As in `shpi.ope.inference.steps`, a floor of the standard error from the effective sample size.
    share = below / below.sum()
    rates = np.where(below > 0, top, 0.0) / np.where(below > 0, below, 1.0)
    spread = float(share @ (rates - rate) ** 2) / max(1 - float(share @ share), 1e-3)
    floor, variance = total**2 * spread * float(share @ share), float(np.sum(pull**2)) / users**2
    influence = pull * (max(1.0, math.sqrt(floor / variance)) if variance > 0 else 1.0) + rate * level
    return total * rate, influence - influence.mean()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ratio:
    """The fitted state densities of pi and mu, relative to that of the log."""

    problem: Problem
    design: Design
    number: int  # number of the design, for cache keys
    zeta: Float64Array  # [2, p] coefficients of pi, of mu
    floor: float  # smallest denominator
    negative: float  # share of the decisions with a negative state weight

    @classmethod
    def of(cls, problem: Problem, gamma: float, recipe: Recipe | FeatureMap | None) -> _Ratio:
        default = curves(100, 0.5, problem.settings.seed, intercept=False)
        design = make_design(problem, "state", default if recipe is None else recipe)
        sums = problem.total(partial(_ratio_sums, problem=problem, design=design), _added)
        if not sums[0].rows > 0:
            raise DataError(
                expected="decisions whose next context is known, for the ratio of contexts",
                found="none",
                remedy="log the context after the last decision, or use SNIPS where each user decides once",
            )
        of_pi, of_mu = (each.solve(gamma) for each in sums)
        draft = cls(
            problem=problem,
            design=design,
            number=problem.visits.number_of(design),
            zeta=np.stack([of_pi, of_mu]),
            floor=0.0,
            negative=0.0,
        )
        means = problem.total(draft._means) / problem.decisions
        if not means[0] > _LEAST:
            raise DataError(
                expected="a fitted density of the logged contexts with a positive mean",
                found=f"{means[0]:.2g}",
                remedy="evaluate on more users, or leave MIS out",
            )
        return replace(draft, floor=_FLOOR * float(means[0]), negative=float(means[1]))

    def _means(self, chunk: Chunk) -> Float64Array:
        of_pi, of_mu = self._both(chunk)
        return np.array([of_mu.sum(), float((of_pi < 0).sum())])

    def _both(self, chunk: Chunk) -> Float64Array:
        """phi(x)'zeta of pi and of mu [2, n]."""
        x = chunk.logs.contexts
        blocks = [slice(start, start + _BLOCK) for start in range(0, len(x), _BLOCK)]
        return chunk.keep(
            ("ratio", self.number),
            lambda: np.concatenate([self.zeta @ self.design.of(x[rows]).T for rows in blocks], axis=1),
        )

    def sums_by_user(self, chunk: Chunk) -> tuple[Float64Array, Float64Array]:
        """For pi and for mu, sums of beta w rho r, beta w rho, beta w, and trajectories [4, users] each."""
        problem, logs = self.problem, chunk.logs
        known = problem.known_weights(chunk, "reward")
        beta = known * problem.discounts[chunk.steps] / (problem.kept[chunk.steps] * problem.users)
        rewards = np.where(known > 0, chunk.rewards, 0.0)
        of_pi, of_mu = self._both(chunk)
        state = beta * (np.maximum(of_pi, 0.0) / np.maximum(of_mu, self.floor))
        count = np.bincount(logs.user_codes, minlength=logs.n_users).astype(np.float64)
        with_pi, with_mu = (
            np.stack([*(add_up(chunk.users, each, logs.n_users) for each in (w * rewards, w, mass)), count])
            for w, mass in ((state * np.exp(chunk.log_ratios), state), (beta, beta))
        )
        return with_pi, with_mu


def _added(
    left: tuple[RatioSums, RatioSums], right: tuple[RatioSums, RatioSums]
) -> tuple[RatioSums, RatioSums]:
    return left[0] + right[0], left[1] + right[1]


def _ratio_sums(chunk: Chunk, problem: Problem, design: Design) -> tuple[RatioSums, RatioSums]:
    """The sums of `shpi.shift.linear` for pi and for mu, in one pass."""
    p, logs = design.p, chunk.logs
    gram, drift, plain, rows = np.zeros((p, p)), np.zeros((p, p)), np.zeros((p, p)), 0.0
    for block in blocks(problem, chunk, design):
        root = block.here * np.sqrt(block.known)[:, None]
        gram += root.T @ root  # a product of a matrix with itself costs half
        left = block.here.T * block.known
        plain += left @ block.after
        left *= np.exp(chunk.log_ratios[block.rows])
        drift += left @ (block.after - block.here)
        rows += float(block.known.sum())
    plain -= gram
    initial = design.rows_of(chunk, logs.offsets[:-1]).sum(axis=0)
    common: dict[str, Any] = {
        "gram": gram,
        "initial": initial,
        "rows": rows,
        "trajectories": logs.n_trajectories,
    }
    return RatioSums(drift=drift, **common), RatioSums(drift=plain, **common)
