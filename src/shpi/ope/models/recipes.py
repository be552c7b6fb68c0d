r"""Default features of the outcome models: those that best predict the returns of held-out users.

For every decision of a trajectory whose end is known, the discounted sum of rewards until the horizon is
compared with V_{H-t}(x_t), fitted by linear backups without the user's fold. The features with the smallest
mean squared error win. The model of Q takes the best features that leave room for coefficients per action.
The choice does not depend on the evaluated policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from shpi.errors import DataError
from shpi.features import (
    Chain,
    FeatureMap,
    Hinges,
    Powers,
    Recipe,
    Standardise,
)
from shpi.features.base import fit_features
from shpi.features.defaults import curves, lines, may_curve
from shpi.ope.models.backups import fit_backups
from shpi.ope.models.columns import Take, returns_of, room, telling_columns
from shpi.ope.models.linear import Design, ModelSums, Target, action_codes, model_sums, reward_sums
from shpi.ope.models.predictions import predict, value_limits
from shpi.ope.problem import Problem, once
from shpi.protocols import Float64Array

MAP_ROWS = 20_000  # contexts that a feature map is fitted to, about
ROWS = 15_000  # decisions of random users on which the recipes are compared
MAX_FEATURES = 800  # most features of a context and an action
MAX_STATE = 200  # most features of a context
EXACT = 1e-12  # relative to the mean square of returns; smaller errors are rounding
LEAST = 60  # decisions with a known return; with fewer, linear features are taken without comparison


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A recipe and the number of its features."""

    recipe: Recipe
    width: int


def candidates(width: int, seed: int) -> list[Candidate]:
    """The candidate recipes, the simplest first."""
    recipes: list[tuple[Recipe, int]] = [
        (lines(intercept=False), width),
        (Chain((Standardise(), Powers(degree=2, intercept=False))), 2 * width),
        (Chain((Standardise(), Hinges(knots=3, intercept=False))), 4 * width),
        (Chain((Standardise(), Powers(degree=4, intercept=False))), 4 * width),
    ]
    if may_curve(width, "outcome model"):
        for bandwidth in (2.0, 1.0):
            curved = curves(60, bandwidth, seed, intercept=False, beside_lines=True)
            recipes.append((curved, width + 60))
    fitting = [recipe for recipe in recipes if recipe[1] <= MAX_STATE] or recipes[:1]
    return [Candidate(recipe=recipe, width=count) for recipe, count in fitting]


@once
def designed(
    problem: Problem, target: Target, features: Recipe | FeatureMap | None
) -> tuple[Design, ModelSums]:
    """The design and its sums, computed once for all estimators with the same features."""
    design = make_design(problem, target, features)
    # Problems of a family differ only in their rewards; the first one computes what they share.
    family, place = problem.family, ("sums", id(design), problem.metric)
    if place not in family:
        known = problem.head.reward_observed is None or problem.metric is not None
        others = ("sums", id(design), "rewards all known")
        if known and others in family:
            rewards = problem.total(partial(reward_sums, problem=problem, design=design))
            family[place] = replace(family[others], reward=rewards)
        else:
            family[place] = model_sums(problem, design)
            if known:
                family.setdefault(others, family[place])
    return design, family[place]


def make_design(problem: Problem, target: Target, features: Recipe | FeatureMap | None) -> Design:
    """The design with the given features, or with the best ones, fitted to a sample of the log."""
    logs = problem.sample().logs
    codes = np.ones((1, 1)) if target == "state" else action_codes(logs, problem.times_taken)
    sample = logs.contexts[:: 1 + len(logs) // MAP_ROWS]
    if features is not None:
        return Design(features=fit_features(features, sample), codes=codes, target=target)
    recipe, family = best_recipe(problem, codes), problem.family
    fitted = repr(recipe)  # all targets share one map, so that features are computed once per chunk
    if fitted not in family:
        family[fitted] = fit_features(recipe, sample)
    if (target, fitted) not in family:
        family[target, fitted] = Design(features=family[fitted], codes=codes, target=target)
    design: Design = family[target, fitted]
    return design


def best_recipe(problem: Problem, codes: Float64Array) -> Recipe:
    """The best recipe with room for the codes [A, q]; if none, linear features of as many columns as fit."""
    ranked = _ranked(problem)
    width, most = problem.head.schema.width, room(codes, problem.settings.folds)
    fitting = [candidate for candidate in ranked if candidate.width <= most]
    for candidate in fitting:
        if (candidate.width + 1) * codes.shape[1] <= MAX_FEATURES:
            return candidate.recipe
    if fitting:
        return min(fitting, key=lambda candidate: candidate.width).recipe
    columns = problem.memo(("columns", codes.shape), lambda: telling_columns(problem, codes, most))
    return Chain((Take(columns=columns, width_in=width), *lines(intercept=False).steps))


@once
def _ranked(problem: Problem) -> list[Candidate]:
    """All candidates, the best first.

    Problems that need only values (``values_only``) take the ranking of the first problem of their family.
    """
    family = problem.family
    if not problem.values_only or "recipes" not in family:
        recipes = candidates(problem.head.schema.width, problem.settings.seed)
        losses = _losses(problem, recipes)
        ranked = [recipes[i] for i in np.argsort(losses, kind="stable")]
        family.setdefault("recipes", ranked)
        return ranked
    shared: list[Candidate] = family["recipes"]
    return shared


def _losses(problem: Problem, recipes: Sequence[Candidate]) -> Float64Array:
    """The mean squared error of V on held-out users by recipe; infinite if backups diverge.

    All are 0 if there is nothing to compare, or too little to compare it by.
    """
    losses = np.zeros(len(recipes))
    logs = problem.sample(ROWS, least=4).logs if len(recipes) > 1 else problem.head
    if len(recipes) == 1 or logs.n_users < 4:
        return losses
    plain = replace(problem.settings, horizon=None, truncated="censored")
    sample = Problem.of(problem.policy, logs, plain)
    chunk = next(sample.chunks())
    returns, known = returns_of(sample, chunk)
    if known.sum() < LEAST:
        return losses
    limits, folds = value_limits(sample, sample.horizon), range(sample.settings.folds)
    for i, candidate in enumerate(recipes):
        features = fit_features(candidate.recipe, chunk.logs.contexts)
        design = Design(features=features, codes=np.ones((1, 1)), target="state")
        sums = model_sums(sample, design)
        fit = partial(fit_backups, design=design, gamma=sample.gamma, horizon=sample.horizon, limits=limits)
        try:
            fits = [fit(sums.without(fold)) for fold in folds]
        except DataError:
            losses[i] = np.inf
            continue
        losses[i] = np.mean((returns - predict(sample, chunk, fits).value)[known] ** 2)
    # Among recipes that predict exactly (such as a number of decisions), the simplest comes first.
    losses[losses <= EXACT * float(np.mean(returns[known] ** 2))] = 0.0
    return losses
