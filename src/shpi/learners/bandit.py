r"""The contextual bandit: learns offline, without exploration, and maximises the immediate reward only.

    direct      f = argmin_f sum_i (f(x_i, a_i) - r_i)^2
    mtr         f = argmin_f sum_i omega_i (f(x_i, a_i) - r_i)^2,            omega_i = 1 / (K mu(a_i|x_i))
    dr          f = q + g,   q as in direct,
                g = argmin_g sum_i omega_i (g(x_i, a_i) - (r_i - q_-i(x_i, a_i)))^2

and pi(x) = argmax_a f(x, a) among the actions that the log supports. `direct` is best if f can represent
the reward; otherwise its errors are small for mu's actions but not for pi's. `mtr` weights the rows as if
the actions had been uniform; it is what VW's ``--cb_type mtr`` does, and the paper's bandit. `dr` is doubly
robust: if q is right, g only fits noise around 0, whatever mu; if mu is right, f is the weighted fit of q's
residuals. q is cross-fitted: q_-i was fitted without the user of row i (two folds).

The reward is that of the log: a click, or a long-term metric that was joined to each decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from shpi.data._log.users import folds_of_users
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features.parts import saveable
from shpi.learners._words import spell_out
from shpi.learners.base import from_log, greedy_among_seen, propensities_of, rewards_of
from shpi.learners.cloning import BehaviourCloning
from shpi.oracles import Gbdt, Oracle, PreparedOracle, Ridge, VowpalWabbit
from shpi.oracles.base import WeightKind, combined_weights, score_blocks
from shpi.policies import Greedy, SupportLimited
from shpi.policies.near_mu.support import RelativeDensity
from shpi.policies.scorers import Scorer
from shpi.protocols import BoolArray, Float64Array, FloatArray, Policy

Target = Literal["direct", "mtr", "dr"]


@dataclass(frozen=True, kw_only=True)
class ContextualBandit:
    """Regress the reward on (x, a), then act greedily.

    Args:
        oracle: the regression. The target decides how its rows are weighted, whatever the oracle says.
        target: "direct", "mtr" (inverse propensities) or "dr" (doubly robust); the last two need
            propensities.
        support: an action is eligible where mu(a|x) is at least this share of the
            largest mu(.|x). None: every action that the log ever took is.
        behaviour: mu, if you have it as code; None clones it from the log (`BehaviourCloning`).
        seed: random seed of the oracle, of the clone and of the folds of "dr".
    """

    oracle: Oracle = field(default_factory=Ridge)
    target: Target = "direct"
    support: float | None = 0.1
    behaviour: Policy | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        spell_out(self)
        if self.target not in get_args(Target):
            raise ConfigError(
                expected=f"target to be one of {', '.join(get_args(Target))}", found=repr(self.target)
            )
        if self.support is not None and not 0 <= self.support <= 1:
            raise ConfigError(expected="support in [0, 1] or None", found=str(self.support))

    @classmethod
    def paper(cls, **changes: Any) -> ContextualBandit:
        """The paper's: Vowpal Wabbit with coin betting and mtr (needs the extra ``vw``)."""
        printed: dict[str, Any] = {"oracle": VowpalWabbit(), "target": "mtr", "support": None}
        return cls(**(printed | changes))

    @classmethod
    def boosted(cls, **changes: Any) -> ContextualBandit:
        """Boosted trees as the regression (needs the extra ``gbdt``)."""
        trees: dict[str, Any] = {"oracle": Gbdt()}
        return cls(**(trees | changes))

    @from_log
    def fit(self, logs: LoggedData) -> Greedy | SupportLimited:
        """The greedy policy of the fitted reward."""
        usable = logs.reward_observed
        rewards = rewards_of(logs, "ContextualBandit", usable)
        if self.target != "direct":
            propensities_of(logs, f"ContextualBandit(target='{self.target}')")
        seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(self.seed).spawn(2)]
        if self.target == "dr":
            scorer = self._doubly_robust(logs, rewards, usable, seeds)
        else:
            kind: WeightKind = "mtr" if self.target == "mtr" else "none"
            scorer = regress(self.oracle, logs, rewards, usable, kind, seeds[0])
        if self.support is None:
            return greedy_among_seen(scorer, logs)
        mu = self.behaviour or BehaviourCloning(seed=self.seed).fit(logs)
        return SupportLimited(scorer, mu, RelativeDensity(mu), self.support, "mbs")

    def _doubly_robust(
        self, logs: LoggedData, rewards: Float64Array, usable: BoolArray | None, seeds: list[int]
    ) -> Scorer:
        whole = regress(self.oracle, logs, rewards, usable, "none", seeds[0])
        left_over = np.empty(len(logs))
        for held_out in _halves(logs, seeds[1]):
            training = ~held_out if usable is None else usable & ~held_out
            other = whole
            if training.any():
                other = regress(self.oracle, logs, rewards, training, "none", seeds[0])
            left_over[held_out] = (rewards - taken_scores(other, logs))[held_out]
        return SumScorer(whole, regress(self.oracle, logs, left_over, usable, "mtr", seeds[0]))


@saveable("learners/sum-scorer")
@dataclass(frozen=True, eq=False)
class SumScorer:
    """f(x, a) = first(x, a) + second(x, a)."""

    first: Scorer
    second: Scorer

    def __post_init__(self) -> None:
        if self.first.n_actions != self.second.n_actions:
            raise ConfigError(
                expected=f"two scorers over {self.first.n_actions} actions",
                found=f"one over {self.second.n_actions}",
            )

    @property
    def n_actions(self) -> int:
        """|A|."""
        return self.first.n_actions

    @property
    def width(self) -> int | None:
        """The width d of a context."""
        return self.first.width

    def scores(self, contexts: FloatArray) -> Float64Array:
        """The sum, [n, A]."""
        return self.first.scores(contexts) + self.second.scores(contexts)


def taken_scores(scorer: Scorer, logs: LoggedData) -> Float64Array:
    """f(x_i, a_i) of the logged decisions, [n]."""
    taken = np.empty(len(logs))
    for rows, scores in score_blocks(scorer, logs.contexts):
        taken[rows] = scores[np.arange(len(scores)), logs.actions[rows]]
    return taken


def regress(
    oracle: Oracle,
    logs: LoggedData,
    targets: Float64Array,
    valid: BoolArray | None,
    kind: WeightKind,
    seed: int,
) -> Scorer:
    """One tuned regression with the row weights of ``kind``."""
    configured: Any = oracle
    weighs = hasattr(configured, "weights") and is_dataclass(configured)
    weights: Float64Array | None = None
    if weighs:
        configured = replace(configured, weights=kind)  # so that its tuning weighs the rows likewise
    else:
        weights = combined_weights(logs, kind)
    prepared: PreparedOracle = configured.prepare(logs, seed=seed).tune(targets, valid=valid)
    return prepared.fit(targets, weights, valid)


def _halves(logs: LoggedData, seed: int) -> list[BoolArray]:
    """Two masks of rows [n] that divide the users."""
    first = folds_of_users(logs.n_users, 2, np.random.default_rng(seed))[logs.user_of_row] == 0
    return [first, ~first]
