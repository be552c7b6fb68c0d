r"""Behaviour cloning: the logging policy mu(a|x), estimated from the log by multinomial logistic regression.

    mu(a|x) = (1 - e) softmax_a(phi(x)'w_a) + e / |C(x)|          over the candidates C(x)

If the log has propensities p = mu(a|x), two things make the clone more accurate. The regression fits p
instead of the sampled actions (`shpi._core.softmax`). And e, the exploration rate that does not depend on
the context, is the largest rate consistent with every row of the log:

    p >= e / |C|     and     1 - p >= e (|C| - 1) / |C|

For an epsilon-greedy mu that is epsilon, and the rest is a plain classification. The floor is kept only if it
fits held-out decisions. On synthetic logs with epsilon 0.3 the distance in total
variation to mu falls from 0.08 to 0.01 (`python -m benchmarks cloning`).
The loss on held-out users chooses the features. If the best clone is still far from mu (by its excess
log-loss), it is refitted with more features and more steps. In HIV the greedy agent returns 4.3e10; the
most probable actions of its clone return 1.9e10 with 200 features (seed 100), and 4.3e10 with 600 (seeds
100 to 103).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from shpi._core.softmax import fit_softmax, taken_loss
from shpi.advantages import taken_probs
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features import FeatureMap, Recipe
from shpi.features.base import fit_features
from shpi.features.chain import with_intercept as add_intercept
from shpi.features.defaults import curves, lines, may_curve
from shpi.learners.base import from_log
from shpi.policies.near_mu.logistic import LogisticPolicy
from shpi.protocols import Int64Array, Policy

CELLS = 2_000_000  # largest number of pairs of decision and action in a fit
LEAST_ROWS, MOST_ROWS = 10_000, 60_000  # smallest and largest number of decisions in a fit
STEPS = 40  # of L-BFGS; a hundred give no better policies
CHOICE_STEPS = 15  # the same while features are chosen
FAR = 0.03  # refit with more features if the excess log-loss over mu exceeds this (nats)
FINE_FEATURES, FINE_STEPS = 600, 150  # of that refit
FEATURES, BANDWIDTHS = 200, (0.1, 0.25, 0.5, 1.0)  # random Fourier features, in medians of the distance
NEGLIGIBLE = 1e-3  # a smaller floor counts as 0
BLOCK = 50_000  # decisions at once
JUDGED = 20_000  # approximate number of decisions on which the distance of a clone from mu is measured


@dataclass(frozen=True, kw_only=True)
class BehaviourCloning:
    """Imitate the log.

    Args:
        features: a recipe or fitted map; None takes linear ones, up to 8 dimensions after a comparison with
            random Fourier features of several bandwidths.
        prior: prior of the coefficients, see above.
        seed: random seed of the features, of the sample and of the split that chooses among features.
    """

    features: Recipe | FeatureMap | None = None
    prior: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.prior > 0:
            raise ConfigError(expected="a positive prior", found=str(self.prior), where="BehaviourCloning")

    @from_log
    def fit(self, logs: LoggedData) -> LogisticPolicy:
        """Choose the features, then maximise the likelihood on a sample."""
        recipes = (
            [self.features] if self.features is not None else default_recipes(logs.schema.width, self.seed)
        )
        maps = [with_intercept(recipe, logs) for recipe in recipes]
        most = int(np.clip(CELLS // logs.n_actions, LEAST_ROWS, MOST_ROWS))
        rows = np.random.default_rng(self.seed).permutation(len(logs))[:most]
        floor = exploration_floor(logs)
        options, steps = [(features, floor) for features in maps], STEPS
        if logs.n_users >= 4 and (floor > 0 or len(maps) > 1):
            loss = cache(partial(_held_out_loss, logs, self.prior, self.seed, most // 3))
            best = min(options, key=loss)
            options = [best] if floor == 0 else sorted([best, (best[0], 0.0)], key=loss)
            curved = maps.index(best[0])
            if curved > 0 and loss(options[0]) > loss_of_mu(logs) + FAR:
                finer = default_recipes(logs.schema.width, self.seed, FINE_FEATURES)[curved]
                options, steps = [(with_intercept(finer, logs), options[0][1])], FINE_STEPS
        features, floor = options[0]
        return imitate(logs, features, rows, self.prior, steps, floor)


def exploration_floor(logs: LoggedData) -> float:
    """e, see the head of this file; 0 without propensities or when it is negligible."""
    if logs.propensities is None or len(logs) == 0:
        return 0.0
    tried = np.bincount(logs.actions, minlength=logs.n_actions) > 0
    counts = np.sum(tried) if logs.candidates is None else (logs.candidates & tried).sum(axis=1)
    size = np.broadcast_to(np.asarray(counts, dtype=np.float64), len(logs))
    free = size > 1
    if not free.any():
        return 0.0
    p, size = logs.propensities[free], size[free]
    floor = min(float((p * size).min()), float(((1 - p) * size / (size - 1)).min()))
    return min(floor, 1.0) if floor >= NEGLIGIBLE else 0.0


def _held_out_loss(
    logs: LoggedData, prior: float, seed: int, most: int, option: tuple[FeatureMap, float]
) -> float:
    """The loss of features and floor on a quarter of the users, after a short fit to the others."""
    rng = np.random.default_rng(seed)
    users = rng.permutation(logs.n_users)[: max(1, logs.n_users // 4)]
    out = np.isin(logs.user_codes, users)[logs.trajectory_of_row]
    if out.all():
        out = np.arange(len(logs)) % 4 == 0
    train, test = (rng.permutation(np.flatnonzero(side))[:most] for side in (~out, out))
    features, floor = option
    policy = imitate(logs, features, train, prior, CHOICE_STEPS, floor)
    mask = None if logs.candidates is None else logs.candidates[test]
    probs = policy.action_probs(logs.contexts[test], mask)
    taken = probs[np.arange(len(test)), logs.actions[test]]
    known = None if logs.propensities is None else logs.propensities[test].astype(np.float32)
    return taken_loss(np.log(np.maximum(taken, 1e-6)).astype(np.float32), known)


def loss_of_mu(logs: LoggedData) -> float:
    """The lowest loss that a clone can reach; inf if the log has no propensities."""
    if logs.propensities is None or len(logs) == 0:
        return np.inf
    known = logs.propensities.astype(np.float32)
    return taken_loss(np.log(np.maximum(known, 1e-6)).astype(np.float32), known)


def distance_to_mu(policy: Policy, logs: LoggedData) -> float:
    """Excess log-loss over mu on a log, in nats; 0 if the log has no propensities."""
    if logs.propensities is None or len(logs) == 0:
        return 0.0
    some = logs.select(np.arange(len(logs.offsets) - 1) % (1 + len(logs) // JUDGED) == 0)
    log_probs = np.log(np.maximum(taken_probs(some, policy), 1e-6)).astype(np.float32)
    assert some.propensities is not None
    return taken_loss(log_probs, some.propensities.astype(np.float32)) - loss_of_mu(some)


def default_recipes(width: int, seed: int, n_features: int = FEATURES) -> list[Recipe | FeatureMap]:
    """Linear features, and for narrow contexts random Fourier features of four bandwidths."""
    if not may_curve(width, "clone"):
        return [lines()]
    return [lines(), *(curves(n_features, bandwidth, seed) for bandwidth in BANDWIDTHS)]


def with_intercept(recipe: Recipe | FeatureMap, logs: LoggedData) -> FeatureMap:
    """Fit the features and add an intercept."""
    return add_intercept(fit_features(recipe, logs.contexts[:: 1 + len(logs) // BLOCK]))


def imitate(
    logs: LoggedData, features: FeatureMap, rows: Int64Array, prior: float, steps: int, floor: float
) -> LogisticPolicy:
    """Fit the logistic regression, with an exploration floor, on some of the rows."""
    tried = np.bincount(logs.actions, minlength=logs.n_actions) > 0
    mask = None if logs.candidates is None else logs.candidates[rows]
    probs = None
    if logs.propensities is not None:
        counts = np.sum(tried) if mask is None else (mask & tried).sum(axis=1)
        probs = logs.propensities[rows].astype(np.float32)
        if floor > 0:
            above = (probs - floor / counts) / max(1 - floor, NEGLIGIBLE)
            probs = np.clip(above, 0.0, 1.0).astype(np.float32)
    if floor == 1.0:  # nothing is left to learn
        return LogisticPolicy(np.zeros((logs.n_actions, features.width)), features, tried)
    weights = fit_softmax(
        features.transform(logs.contexts[rows]).astype(np.float32),
        logs.actions[rows],
        mask,
        n_actions=logs.n_actions,
        prior=prior,
        probs=probs,
        max_iterations=steps,
    )
    return LogisticPolicy(weights.T, features, tried, floor)
