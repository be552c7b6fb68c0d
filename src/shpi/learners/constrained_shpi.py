"""SHPI composed with SPIBB or MBS: their constraint on the policy, its k-step advantages.

    A_k  <- k-step advantages under pi_{j-1}, with the bonus gamma^k V_mu(x_{t+k})
    f    <- argmin_f sum (f(x, a) - A_k)^2
    pi_j <- the policy that is greediest in f among those that the constraint allows

The paper suggests it where mu explores little (sections 5.4 and 6). The two parts repair each other: the
constraint keeps pi where the regression knows something, and also keeps the products of pi/mu small; the
advantages need no fixed point of Q, only V_mu, which is estimated on mu's own states.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shpi.advantages import Advantages, Horizon, StateValues, k_step_advantages, ratios_of, taken_probs
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.learners.base import propensities_of, rewards_of
from shpi.learners.constrained import Rows, limited, table_oracle, table_value
from shpi.learners.gain import Gain, held_out_gain
from shpi.learners.improved import ImprovedPolicy, Iteration
from shpi.learners.mbs import MBS
from shpi.learners.spibb import SPIBB
from shpi.oracles import Oracle, PreparedOracle, Ridge
from shpi.policies import Policy
from shpi.policies.scorers import Scorer
from shpi.protocols import Float64Array
from shpi.values import ValueModel
from shpi.values.base import checked_gamma

GAIN_CLIP = (0.0, 10.0)  # products are only truncated from above when a gain is estimated


@dataclass(frozen=True, kw_only=True)
class ConstrainedSHPI:
    """Policy iteration with k-step advantages among the policies that a constraint allows.

    Args:
        constraint: `SPIBB(min_count=…)` or `MBS(density=…)`, of which only the constraint is used.
        k: how many steps ahead, or "session".
        gamma: the discount.
        iterations: J, at most.
        weight_clip: q1 and q2.
        value: the termination bonus; None for LSTD, over a table where contexts are few.
        oracle: the regression; None for a table where contexts are few and a ridge elsewhere.
        held_out: share of the users on whom the iterate is chosen; 0 returns the last one.
        confidence: of the bound on the gain that an iterate needs to be preferred to mu.
        tolerance: it stops when the probabilities of the logged actions change by less than this on average.
        seed: of all chance.
    """

    constraint: SPIBB | MBS = field(default_factory=SPIBB)
    k: Horizon = "session"
    gamma: float = 0.99
    iterations: int = 10
    weight_clip: tuple[float, float] | None = (0.5, 2.0)
    value: ValueModel | None = None
    oracle: Oracle | None = None
    held_out: float = 0.2
    confidence: float = 0.95
    tolerance: float = 0.001
    seed: int = 0

    def __post_init__(self) -> None:
        checked_gamma(self.gamma)
        checks: tuple[tuple[bool, str, Any], ...] = (
            (self.iterations >= 1, "iterations of at least 1", self.iterations),
            (0 <= self.held_out < 1, "held_out in [0, 1)", self.held_out),
            (0.5 <= self.confidence < 1, "confidence in [0.5, 1)", self.confidence),
        )
        for fine, expected, found in checks:
            if not fine:
                raise ConfigError(expected=expected, found=repr(found), where="ConstrainedSHPI")

    @classmethod
    def mbs(cls, **changes: Any) -> ConstrainedSHPI:
        """With the constraint of MBS in place of SPIBB's."""
        other: dict[str, Any] = {"constraint": MBS()}
        return cls(**(other | changes))

    def fit(self, logs: LoggedData) -> ImprovedPolicy:
        """Run the algorithm on a log with propensities."""
        rewards_of(logs, "ConstrainedSHPI", logs.reward_observed)
        propensities_of(logs, "ConstrainedSHPI")
        seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(self.seed).spawn(3)]
        chooses = self.held_out > 0 and logs.n_users >= 10
        train, test = logs.split_users(self.held_out, seed=seeds[0]) if chooses else (logs, None)
        constraint = self.constraint.constraint(train)
        value = (self.value or table_value(constraint)).fit(train, gamma=self.gamma, seed=seeds[1])
        bonus = StateValues.of(value, train)
        oracle = self.oracle or table_oracle(constraint) or Ridge()
        prepared: PreparedOracle = oracle.prepare(train, seed=seeds[2])
        rows = constraint.on(train.contexts, train.candidates)
        probs = propensities_of(train, "ConstrainedSHPI")  # pi_0 = mu
        history: list[Iteration] = []
        for number in range(1, self.iterations + 1):
            advantages = self._advantages(train, bonus, probs)
            if number == 1:
                prepared = prepared.tune(advantages.values, valid=advantages.valid)
            scorer = prepared.fit(advantages.values, valid=advantages.valid)
            taken = _taken(prepared, scorer, train, rows)
            changed = float(np.abs(taken - probs).mean())
            probs, policy = taken, constraint.policy(scorer)
            gain = None if test is None else self._gain(test, StateValues.of(value, test), policy)
            history.append(Iteration.of(number, advantages, changed, policy, gain))
            if changed <= self.tolerance:
                break
        return ImprovedPolicy.choose(history, behaviour=constraint.mu, value=value)

    def _advantages(
        self, logs: LoggedData, bonus: StateValues, probs: Float64Array, *, clipped: bool = True
    ) -> Advantages:
        return k_step_advantages(
            logs,
            bonus,
            k=self.k,
            gamma=self.gamma,
            ratios=ratios_of(logs, probs),
            weight_clip=self.weight_clip if clipped else GAIN_CLIP,
        )

    def _gain(self, test: LoggedData, bonus: StateValues, policy: Policy) -> Gain:
        probs = taken_probs(test, policy)
        advantages = self._advantages(test, bonus, probs, clipped=False)
        return held_out_gain(test, advantages, probs, self.confidence)


def _taken(prepared: PreparedOracle, scorer: Scorer, logs: LoggedData, rows: Rows) -> Float64Array:
    """pi(a_t|x_t) [n] of the allowed policy that is greediest in the scores."""
    taken = np.empty(len(logs))
    for part, scores in prepared.scores_on_log(scorer):
        probs = limited(scores, rows, part)
        taken[part] = probs[np.arange(len(probs)), logs.actions[part]]
    return taken
