r"""Doubly robust estimators: a model's value, with its errors corrected by importance weights.

    DR     J = (1/U) sum_i V_H(x_i0) + (trajectories per user) sum_t gamma^t M_t,  M_t the plain weighted mean
           of z_t = r_t + gamma V_{H-t-1}(x_{t+1}) - Q_{H-t}(x_t, a_t) with weights w_{0:t}
    WDR    the same with the self-normalised mean (Thomas and Brunskill 2016)

Q is cross-fitted by linear backups (`shpi.ope.models.backups`), without the fold of the user it is used for,
and V = sum_a pi(a|x) Q. With right propensities DR is unbiased for any Q; a good Q lowers the variance, a bad
one raises it. WDR accepts a bias of O(1/U) for bounded weights. Q cannot remove the variance of the weights
over long horizons: for these see `shpi.ope.estimators.kstep`.

``paired`` (the default) reports J(mu) + DR(pi) - DR(mu), where DR(mu) uses the same Q, weights of 1, and
V = sum_a mu(a|x) Q. DR(mu) has the same mean as J(mu) and shares its noise with DR(pi), so that small changes
of a policy can be detected; pi = mu gives a lift of exactly 0. It needs mu(.|x) in the log; without it the
textbook form, ``paired=False``, is used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, TypeVar

import numpy as np

from shpi.errors import DataError
from shpi.features import FeatureMap, Recipe
from shpi.ope.estimators.base import finish
from shpi.ope.estimators.baseline import on_policy
from shpi.ope.estimators.importance import window_weights
from shpi.ope.inference.steps import Normaliser, StepMeans, StepSummed, floored, summed
from shpi.ope.inference.weighting import StepWeights, Terms, add_up
from shpi.ope.models.backups import (
    Backups,
    adjoint,
    contributions,
    fit_backups,
    value_gradients,
)
from shpi.ope.models.columns import note_of
from shpi.ope.models.linear import Target, sums_by_step
from shpi.ope.models.predictions import Predicted, predict, value_limits
from shpi.ope.models.recipes import designed
from shpi.ope.problem import Chunk, Known, Problem, once
from shpi.ope.results import Estimate, Weights
from shpi.protocols import Float64Array

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _DoublyRobust:
    """What DR and WDR share: all but whether the weights are normalised at each step.

    Args:
        paired: whether to report J(mu) plus the difference to the same estimate for mu; see the top.
        features: features of a context, for Q; None: linear ones with squares, or smooth Fourier features.
        ridge: ridge penalty, in decisions; None: the defaults.
        name: name of the estimator.
    """

    normalise: ClassVar[bool]
    paired: bool = True
    features: Recipe | FeatureMap | None = None
    ridge: float | None = None
    name: str = ""

    def estimate(self, problem: Problem) -> Estimate:
        """See the top of this file."""
        residuals = Residuals.of(problem, self.features, self.ridge, paired=self.paired)
        noise_of_fit = partial(residuals.noise_of_fit, np.ones(problem.horizon))
        (sums,), noise = problem.all_of(
            [
                partial(residuals.sums, normalise=self.normalise),
                partial(residuals.memo, "noise", noise_of_fit),  # DR uses that of WDR, to save a pass
            ]
        )
        return finish(
            self.name,
            problem,
            sums.value,
            sums.influence + (noise - noise.mean()),
            sums.weights,
            residuals.notes,
            consistent=self.normalise,  # intervals of plain weights cover too rarely
        )


@dataclass(frozen=True, kw_only=True)
class DR(_DoublyRobust):
    """Sequential doubly robust estimation."""

    normalise = False
    name: str = "DR"


@dataclass(frozen=True, kw_only=True)
class WDR(_DoublyRobust):
    """Weighted doubly robust estimation: DR with weights normalised at each step."""

    normalise = True
    name: str = "WDR"


@dataclass(frozen=True, kw_only=True, eq=False)
class Summed:
    """A value with its influences [U]."""

    value: float
    influence: Float64Array
    weights: Weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Residuals:
    """The fitted Q, and the terms that correct it; shared by DR, WDR and MAGIC."""

    problem: Problem
    fits: CrossFits
    paired: bool
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        problem: Problem,
        features: Recipe | FeatureMap | None,
        ridge: float | None,
        *,
        paired: bool,
    ) -> Residuals:
        """Fit Q without each fold in turn, once for all estimators with the same settings."""
        fits = cross_fits(problem, "pi", features, ridge)
        possible = problem.head.behaviour is not None
        notes = [*note_of(fits.by_fold[0].design.features)]
        if paired and not possible:
            notes.append("mu(.|x) was not logged: not paired")
        boost = max(fit.ridge_factor for fit in fits.by_fold)
        if boost > 1:
            notes.append(f"the ridge of Q was raised {boost:g} times, because values left the possible range")
        return cls(problem=problem, fits=fits, paired=paired and possible, notes=tuple(notes))

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of ``make``, computed once for all estimators with the same settings."""
        return self.problem.memo((key, self.fits.key, self.paired), make)

    def sums(self, *, normalise: bool, steps: tuple[int | None, ...] = (None,)) -> list[Summed]:
        """V(x_0) plus the corrections of the first j steps, for each j in ``steps``; None: all steps."""
        (means, own), start, base = self.problem.all_of(
            [
                partial(self._means, normalise, steps),
                partial(self.problem.by_user, self._starts),  # [1 or 2, U]
                partial(on_policy, self.problem),
            ]
        )
        by_steps, at_start = [], [float(values.mean()) for values in start]
        for j, of_pi in enumerate(means):
            value, influence = at_start[0] + of_pi.value, start[0] - at_start[0] + of_pi.influence
            if self.paired:
                value = base.value + value - (at_start[1] + own[j].value)
                influence = base.influence + influence - (start[1] - at_start[1] + own[j].influence)
            by_steps.append(Summed(value=value, influence=influence, weights=of_pi.weights))
        return by_steps

    def _means(
        self, normalise: bool, steps: tuple[int | None, ...]
    ) -> tuple[list[StepMeans], list[StepMeans]]:
        """The corrections with the weights of pi, by number of steps; if paired, also with equal ones."""
        of_pi, of_mu = self._summed(normalise)
        equally = partial(of_mu.means, steps)
        if steps == (None,):  # DR and WDR share these
            equally = partial(self.memo, "means", equally)
        weighted, equal = self.problem.all_of([partial(of_pi.means, steps), equally])
        means = [floored(*pair) for pair in zip(weighted, equal, strict=True)]
        return means, equal if self.paired else []

    def _summed(self, normalise: bool) -> tuple[StepSummed, StepSummed]:
        """The first pass of `_means`, with the weights of pi and with equal ones."""
        terms = partial(self._terms, of_mu=True) if self.paired else self._terms
        weigh = partial(window_weights, k=None)
        weighted = partial(summed, self.problem, weigh, self._terms, normalise=normalise)
        equal = partial(summed, self.problem, StepWeights.equal, terms, normalise=True)
        of_pi, of_mu = self.problem.all_of(
            [
                partial(self.memo, ("summed", normalise), weighted),
                partial(self.memo, ("summed", "equal"), equal),
            ]
        )
        return of_pi, of_mu

    def noise_of_fit(self, reach: Float64Array) -> Float64Array:
        """Each user's influence on sum_t reach_t (step t's correction) + V(x_0) through Q [U].

        For ``reach`` = 1, which is WDR, its mean over logs is 0, by double robustness. In a single log the
        noise of Q times that of the weights remains.
        """
        problem, fits = self.problem, self.fits.by_fold
        if problem.values_only:
            return np.zeros(problem.users)
        try:
            ahead, taken = self.gradients()
        except DataError:  # all weights of some step are 0, which only plain means allow
            ahead, taken = self.gradients(normalise=False)
        # With h decisions to go, V belongs to the correction of the step before; V(x_0) belongs to none.
        of_ahead, of_taken = np.append(reach[::-1], 1.0), np.append(0.0, reach[::-1])  # [H + 1]
        gradients = ahead * of_ahead[:, None] - taken * of_taken[:, None]
        return problem.users * contributions(problem, fits[0].design, [*map(adjoint, fits, gradients)])

    @once
    def gradients(self, *, normalise: bool = True) -> Float64Array:
        """Derivatives by theta_h of every fold's fit [2, K, H + 1, p].

        The first: of V(x_0) and of the next contexts' values V, over all corrections. The second: of the
        values Q of the taken actions.
        """
        of_pi, of_mu = self._summed(normalise)
        return self.problem.total(partial(self._gradients, of_pi=of_pi.normaliser, of_mu=of_mu.normaliser))

    def _gradients(self, chunk: Chunk, of_pi: Normaliser, of_mu: Normaliser) -> Float64Array:
        problem, design = self.problem, self.fits.by_fold[0].design
        terms, discounts = self._terms(problem, chunk), problem.per_user * problem.discounts[chunk.steps]
        taken = discounts * of_pi.shares(chunk, window_weights(chunk, None), terms)
        start = 1.0 / problem.users
        ahead = value_gradients(problem, chunk, design, taken, start=start)
        if self.paired:
            own = discounts * of_mu.shares(chunk, StepWeights.equal(chunk), terms)
            ahead -= value_gradients(problem, chunk, replace(design, target="mu"), own, start=start)
            taken = taken - own
        by_step = sums_by_step(chunk, design, taken, problem, taken=True)[:, ::-1]  # H - t to go at step t
        return np.stack([ahead, np.pad(by_step, ((0, 0), (1, 0), (0, 0)))])

    def _starts(self, chunk: Chunk) -> Float64Array:
        """Per-user sums of V(x_0) under pi and, if mu(.|x) is known, under mu [1 or 2, users]."""
        predicted, first = self.fits.predicted(chunk), chunk.logs.offsets[:-1]
        values = [predicted.value] if predicted.behaviour is None else [predicted.value, predicted.behaviour]
        return np.stack([add_up(chunk.logs.user_codes, value[first], chunk.logs.n_users) for value in values])

    def _terms(self, problem: Problem, chunk: Chunk, *, of_mu: bool = False) -> Terms:
        predicted = self.fits.predicted(chunk)
        ahead = predicted.following(chunk, predicted.behaviour if of_mu else None)
        z = chunk.rewards + problem.gamma * ahead - predicted.taken
        known: Known = "paired return" if self.paired else "return"
        return Terms(values=z, counts=problem.known_weights(chunk, known))


@dataclass(frozen=True, kw_only=True, eq=False)
class CrossFits:
    """Backups for every fold of users, fitted on the other folds."""

    problem: Problem
    by_fold: tuple[Backups, ...]
    key: Hashable  # identifies the fits

    def predicted(self, chunk: Chunk) -> Predicted:
        """Q and V at every decision, computed in the first pass that needs them."""
        return chunk.keep(self.key, lambda: predict(self.problem, chunk, self.by_fold), Predicted)


@once
def cross_fits(
    problem: Problem, target: Target, features: Recipe | FeatureMap | None, ridge: float | None
) -> CrossFits:
    """Fit without each fold in turn, once for all estimators with the same settings."""
    design, sums = designed(problem, target, features)
    limits = value_limits(problem, problem.horizon)
    fits = (
        fit_backups(
            sums.without(fold),
            design,
            gamma=problem.gamma,
            horizon=problem.horizon,
            limits=limits,
            ridge=ridge,
        )
        for fold in range(problem.settings.folds)
    )
    key = ("backups", target, problem.visits.number_of(features), ridge)
    return CrossFits(problem=problem, by_fold=tuple(fits), key=key)
