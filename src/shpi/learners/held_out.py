"""Choose among learners on users that none of them has seen: the rule by which SHPI chooses its iterate.

    gain(pi) = E_mu E_{a ~ pi} [A_k(x, a)] - E_mu E_{a ~ mu} [A_k(x, a)]        with its lower bound

The policy with the largest lower bound is returned if that is above 0, and a clone of mu otherwise. So a
rival with a knob that matters (SPIBB's count, a bandit's target) is tuned with no more and no less than SHPI.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from shpi.advantages import Horizon, StateValues, k_step_advantages, ratios_of, taken_probs
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.learners.base import Learner, propensities_of, rewards_of
from shpi.learners.cloning import BehaviourCloning
from shpi.learners.gain import held_out_gain
from shpi.learners.improved import ImprovedPolicy, Iteration
from shpi.policies import Policy
from shpi.values import LSTD, FittedValue, ValueModel

GAIN_CLIP = (0.0, 10.0)  # products are only truncated from above when a gain is estimated


@dataclass(frozen=True, kw_only=True)
class HeldOutChoice:
    """Fit several learners to some users, and choose among them on the others.

    Args:
        learners: by name.
        k: of the advantages that the gain is measured in.
        gamma: the discount.
        value: the bonus after k steps; `Constant(0.0)` with k = 1 measures the immediate reward.
        held_out: share of the users that choose.
        confidence: of the bound.
        seed: of the split, of the value and of the clone.
    """

    learners: Mapping[str, Learner]
    k: Horizon = "session"
    gamma: float = 0.99
    value: ValueModel = field(default_factory=LSTD)
    held_out: float = 0.2
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.learners or not 0 < self.held_out < 1 or not 0.5 <= self.confidence < 1:
            raise ConfigError(
                expected="at least one learner, held_out in (0, 1) and confidence in [0.5, 1)",
                found=f"{len(self.learners)} learners, {self.held_out} and {self.confidence}",
                where="HeldOutChoice",
            )

    def fit(self, logs: LoggedData) -> ImprovedPolicy:
        """The chosen policy; the rounds of its history are the learners, in their order."""
        rewards_of(logs, "HeldOutChoice", logs.reward_observed)
        propensities_of(logs, "HeldOutChoice")
        if logs.n_users < 2:
            raise ConfigError(
                expected="at least two users, some to learn from and some to choose on",
                found=str(logs.n_users),
                where="HeldOutChoice",
            )
        first, second = (int(s.generate_state(1)[0]) for s in np.random.SeedSequence(self.seed).spawn(2))
        train, test = logs.split_users(self.held_out, seed=first)
        value = self.value.fit(train, gamma=self.gamma, seed=second)
        history = [
            self._judge(number, learner.fit(train), test, value)
            for number, learner in enumerate(self.learners.values(), start=1)
        ]
        mu = BehaviourCloning(seed=self.seed).fit(train)
        return ImprovedPolicy.choose(history, behaviour=mu, value=value)

    def _judge(self, number: int, policy: Policy, test: LoggedData, value: FittedValue) -> Iteration:
        probs = taken_probs(test, policy)
        advantages = k_step_advantages(
            test,
            StateValues.of(value, test),
            k=self.k,
            gamma=self.gamma,
            ratios=ratios_of(test, probs),
            weight_clip=GAIN_CLIP,
        )
        changed = float(np.abs(probs - propensities_of(test, "HeldOutChoice")).mean())
        gain = held_out_gain(test, advantages, probs, self.confidence)
        return Iteration.of(number, advantages, changed, policy, gain)
