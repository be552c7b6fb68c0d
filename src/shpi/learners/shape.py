r"""Linear or curved: the features of f, chosen by how they predict where the log ends.

Policies that improve go to states that are better than most of the log, and there f has to extrapolate.
Held-out users are no test of that: they visit the states of the log. So f is fitted on the rows whose V(x)
is in the lower four fifths and judged on the others, the best states:

    score = mean( 2 y g - g^2 )  =  what g explains of y:  E y^2 - E (y - g)^2

with y the centred advantages and g as in `shpi.learners.evidence`. Curved features are taken if they explain
something there, clearly, and half as much again as lines; lines otherwise.

Scores in parts of the variance of y, of lines and of the best curves (k = 5, seed 100): HIV 0.16 and 0.41 at
epsilon 1, -0.06 and 0.20 at 0.3; storefront 0.12 and 0.14; synthetic 0.010 and 0.010 at epsilon 1, -0.002
and -0.001 at 0.3. Policies agree (`python -m benchmarks shape`, seeds 100 and 101): in HIV curves return 29
and 80 times what lines do at epsilon 1, 1.4 and 2.3 times at 0.3. On uniform synthetic logs they return
8,481 and 7,142, lines 8,413 and 8,416: curves can win there, and can lose much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shpi.advantages import Advantages, StateValues
from shpi.data.logged import LoggedData
from shpi.features import Chain, Identity, RandomFourier, Recipe, Standardise, Union
from shpi.learners.evidence import in_standard_errors
from shpi.learners.on_log import Improvement
from shpi.oracles import Ridge
from shpi.oracles.crossval import deal_users
from shpi.policies import Policy
from shpi.protocols import BoolArray, Float64Array

NARROW, FEW_ACTIONS = 8, 100  # where curved features are tried: up to so many dimensions and actions
BANDWIDTHS = ((2.0, 100), (4.0, 60))  # in medians of the distance, with the number of features
FEW_VALUES, SAMPLE = 12, 10_000  # distinct values of a discrete dimension, in so many rows
FEATURE_ROWS = 50_000  # on which means and scales are taken
JUDGED_ROWS = 100_000  # about so many decisions of random users decide
LOWER_PART = 0.8
CLEARLY = 2.0  # standard errors
FAR_BETTER = 1.5  # times what lines explain
PROBE = 5  # k of the advantages that decide: long windows bury the difference in noise


def linear_features(logs: LoggedData) -> Ridge:
    """A ridge over standardised contexts."""
    plain = Chain((Standardise(), Identity(intercept=False)))
    return Ridge(features=plain.fit(logs.contexts[:: 1 + len(logs) // FEATURE_ROWS]))


def for_discrete(logs: LoggedData, seed: int) -> Ridge | None:
    """Where every dimension takes few values nobody leaves the log's states: its own test decides."""
    sample = logs.contexts[:: 1 + len(logs) // SAMPLE]
    if not may_curve(logs) or any(len(np.unique(column)) > FEW_VALUES for column in sample.T):
        return None
    return Ridge(features=(*curved_recipes(seed), Chain((Standardise(), Identity(intercept=False)))))


def may_curve(logs: LoggedData) -> bool:
    """Whether curved features are worth a try."""
    return 0 < logs.schema.width <= NARROW and logs.n_actions <= FEW_ACTIONS


def choose_shape(
    logs: LoggedData, bonus: StateValues, advantages: Advantages, mu: Policy, *, seed: int
) -> Ridge:
    """The oracle whose features predict the advantages in the best states of the log, see above.

    Args:
        logs: what the policy is learned from.
        bonus: V at its contexts, which says what the best states are.
        advantages: A_k of its decisions under mu.
        mu: the logging policy.
        seed: of the random features and of the sample of users.
    """
    lines = linear_features(logs)
    rows = deal_users(logs, 1, JUDGED_ROWS, seed) >= 0
    part = Part(
        improve=Improvement(logs=logs.select(rows[logs.offsets[:-1]]), mu=mu, reach=None),
        y=advantages.values[rows],
        valid=advantages.valid[rows],
    )
    v = bonus.rows[rows]
    best = part.valid & (v > np.quantile(v[part.valid], LOWER_PART)) if part.valid.any() else part.valid
    if not best.any() or not (part.valid & ~best).any():
        return lines
    options = [lines, *(Ridge(features=recipe) for recipe in curved_recipes(seed))]
    scores = [part.explained(option, best, seed) for option in options]
    judged = part.improve.logs
    user = judged.user_codes[judged.trajectory_of_row[best]]
    top = max(range(1, len(options)), key=lambda i: float(scores[i].mean()))
    clear = (in_standard_errors(one, user) > CLEARLY for one in (scores[top], scores[top] - scores[0]))
    return options[top] if all(clear) and scores[top].mean() > FAR_BETTER * scores[0].mean() else lines


def curved_recipes(seed: int) -> Sequence[Recipe]:
    """Lines and random Fourier features together, of several bandwidths."""
    lines = Identity(intercept=False)
    return [
        Chain(
            (
                Standardise(),
                Union((lines, RandomFourier(n_features=p, bandwidth_factor=c, intercept=False, seed=seed))),
            )
        )
        for c, p in BANDWIDTHS
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Some users of a log, with the advantages of their decisions."""

    improve: Improvement
    y: Float64Array  # [n]
    valid: BoolArray  # [n]

    def explained(self, oracle: Ridge, judged: BoolArray, seed: int) -> Float64Array:
        """2 y g - g^2 at the judged rows, for an oracle that was fitted to the other ones."""
        others = self.valid & ~judged
        centred = self.y - self.y[self.valid].mean()
        prepared = oracle.prepare(self.improve.logs, seed=seed).tune(centred, valid=others)
        scorer = prepared.fit(centred, valid=others)
        effects = self.improve.expected_effects(scorer, prepared)[judged]
        explained: Float64Array = 2 * centred[judged] * effects - effects**2
        return explained
