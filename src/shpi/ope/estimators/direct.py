r"""Model-based estimators: the direct method and fitted Q evaluation. They need no propensities.

    DirectMethod   J = (trajectories per user) sum_t gamma^t mean_i sum_a pi(a|x_it) r-hat(x_it, a)
    FQE            J = (1/U) sum_i sum_a pi(a|x_i0) Q-hat_H(x_i0, a)

DirectMethod predicts rewards in the contexts of the log: right for bandits, biased if actions change later
contexts. FQE backs values up over the horizon (`shpi.ope.models.backups`), so it follows pi into its own
contexts, as far as the linear model is right. A wrong model biases both, however many users there are, and
their intervals do not cover that bias.

``paired`` (the default) reports J(mu) + J-hat(pi) - J-hat(mu), with J-hat(mu) from the same model: model
errors common to both cancel, and pi = mu gives a lift of exactly 0 if mu(.|x) was logged. If it was not,
J-hat(mu) uses the logged actions. ``paired=False`` is the textbook estimator.

The influences include the noise of the fit as well as that of the contexts (the sandwich of
`shpi.ope.models.backups`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from shpi.features import FeatureMap, Recipe
from shpi.ope.estimators.base import finish
from shpi.ope.estimators.baseline import on_policy, reward_terms
from shpi.ope.inference.steps import Normaliser, summed
from shpi.ope.inference.weighting import StepWeights, Terms
from shpi.ope.models.backups import Backups, adjoint, contributions, fit_backups
from shpi.ope.models.columns import note_of
from shpi.ope.models.linear import Design, Target, sums_by_step, target_codes, target_features
from shpi.ope.models.predictions import value_limits
from shpi.ope.models.recipes import designed
from shpi.ope.problem import Chunk, Problem
from shpi.ope.results import Estimate
from shpi.protocols import Float64Array


class Modelled(NamedTuple):
    """A model's value, and the influence of every user on it."""

    value: float
    influence: Float64Array  # [U]
    ridge_factor: float = 1.0  # factor by which the ridge was raised
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _ModelAlone(ABC):
    """What FQE and DM share: all but the model.

    Args:
        paired: whether to report J(mu) plus the model's difference; see the top of this file.
        features: features of a context; None: linear ones with squares, or smooth Fourier features.
        ridge: ridge penalty, in decisions; None: the defaults.
        name: name of the estimator.
    """

    steps: ClassVar[int | None] = None  # decisions for which effects are followed; None: all
    paired: bool = True
    features: Recipe | FeatureMap | None = None
    ridge: float | None = None
    name: str = ""

    @abstractmethod
    def model(self, problem: Problem, target: Target) -> Modelled:
        """The model's value of pi or of mu."""

    def estimate(self, problem: Problem) -> Estimate:
        """The model's value of pi, or J(mu) plus the difference between its values of pi and of mu."""
        targets: tuple[Target, ...] = ("pi", "mu") if self.paired else ("pi",)
        of_pi, *of_mu = problem.all_of([partial(self.model, problem, target) for target in targets])
        value, influence, notes = of_pi.value, of_pi.influence, [*of_pi.notes]
        if of_pi.ridge_factor > 1:
            notes.append(
                f"the ridge was raised {of_pi.ridge_factor:g} times, because values left the possible range"
            )
        for itself in of_mu:
            base = on_policy(problem)
            if problem.head.behaviour is None:
                notes.append("mu(.|x) was not logged: the model's value of mu uses the logged actions")
            value = base.value + value - itself.value
            influence = base.influence + influence - itself.influence
        return finish(self.name, problem, value, influence, None, tuple(notes), steps=self.steps)


@dataclass(frozen=True, kw_only=True)
class FQE(_ModelAlone):
    """Fitted Q evaluation in closed form."""

    name: str = "FQE"

    def model(self, problem: Problem, target: Target) -> Modelled:
        """The model's value of pi or of mu."""
        design, by_fold = designed(problem, target, self.features)
        sums = by_fold.without(None)
        fit = fit_backups(
            sums,
            design,
            gamma=problem.gamma,
            horizon=problem.horizon,
            limits=value_limits(problem, problem.horizon),
            ridge=self.ridge,
        )
        gradients = np.zeros_like(fit.theta)
        gradients[-1] = sums.initial[0] / problem.users
        value = float(gradients[-1] @ fit.theta[-1])
        moved, own = problem.all_of(
            [
                lambda: contributions(problem, design, [adjoint(fit, gradients)]),
                lambda: problem.by_user(partial(_start_values, fit=fit)),
            ]
        )
        influence = own - own.mean() + problem.users * (moved - moved.mean())
        return Modelled(value, influence, fit.ridge_factor, note_of(design.features))


@dataclass(frozen=True, kw_only=True)
class DirectMethod(_ModelAlone):
    """A reward model, averaged over the logged contexts."""

    steps = 1
    name: str = "DM"

    def model(self, problem: Problem, target: Target) -> Modelled:
        """The model's value of pi or of mu."""
        design, by_fold = designed(problem, target, self.features)
        fit = fit_backups(
            by_fold.without(None),
            design,
            gamma=0.0,
            horizon=1,
            limits=value_limits(problem, 1),
            ridge=self.ridge,
        )
        key = ("rewards", target, problem.visits.number_of(self.features), self.ridge)
        terms = partial(_predicted_rewards, fit=fit, key=key)
        sums = summed(problem, StepWeights.equal, terms, normalise=True)
        (means,), moved = problem.all_of([sums.means, partial(_noise, problem, fit, sums.normaliser)])
        influence = means.influence + problem.users * (moved - moved.mean())
        return Modelled(means.value, influence, fit.ridge_factor, note_of(design.features))


# ---------------------------------------------------------------------- shared


def _noise(problem: Problem, fit: Backups, normaliser: Normaliser) -> Float64Array:
    """The influence of each user on the mean predicted reward through the fit [U]."""
    if problem.values_only:
        return np.zeros(problem.users)
    gradients = np.zeros((2, fit.design.p))
    gradients[1] = problem.total(
        partial(_summed_features, problem=problem, design=fit.design, normaliser=normaliser)
    )
    return contributions(problem, fit.design, [adjoint(fit, gradients)], rewards_only=True)


def _summed_features(chunk: Chunk, problem: Problem, design: Design, normaliser: Normaliser) -> Float64Array:
    """The sum of psi over decisions, each with its weight in the value [p]."""
    share = normaliser.shares(chunk, StepWeights.equal(chunk), reward_terms(problem, chunk))
    share *= problem.per_user * problem.discounts[chunk.steps]
    total: Float64Array = sums_by_step(chunk, design, share, problem).sum(axis=(0, 1))
    return total


def _start_values(chunk: Chunk, fit: Backups) -> Float64Array:
    """The sum over each user's trajectories of the value at the first context, [users]."""
    logs = chunk.logs
    total = np.zeros(logs.n_users)
    first = logs.offsets[:-1]
    for rows, psi in target_features(chunk, fit.design, first):
        np.add.at(total, chunk.users[rows], psi @ fit.theta[-1])
    return total


def _predicted_rewards(problem: Problem, chunk: Chunk, fit: Backups, key: Hashable) -> Terms:
    def make() -> Float64Array:
        design, n = fit.design, len(chunk.logs)
        theta = fit.theta[1].reshape(-1, design.d)  # [q, d]
        values = np.empty(n)
        for start in range(0, n, chunk.block):
            rows = slice(start, min(start + chunk.block, n))
            parts = design.rows_of(chunk, rows) @ theta.T
            values[rows] = np.einsum("bq,bq->b", parts, target_codes(chunk, design, rows))
        return values

    return Terms(values=chunk.keep(key, make), counts=problem.known_weights(chunk, "reward"))
