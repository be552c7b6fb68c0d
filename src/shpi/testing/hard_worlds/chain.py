"""A Markov chain with a few hidden states, simulated for many users at once and solved exactly.

    r(s, a) = reward(s, a) + gain * bonus(s, a)        in the mean; `draw` adds noise around it

All differences between users (a type, the day of entry, how tired they are) are part of the hidden state.
Values are linear in ``gain``, so `gain_for` can find the gain at which a policy has exactly a given lift.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from shpi.errors import ConfigError
from shpi.protocols import BoolArray, Float64Array, Int64Array

Draw = Callable[[np.random.Generator, Float64Array, Int64Array, Int64Array], Float64Array]


def normal_noise(scale: float) -> Draw:
    """Rewards with normal noise around their mean."""
    return lambda rng, mean, states, actions: mean + scale * rng.standard_normal(mean.shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """S hidden states, A actions, H decisions.

    Args:
        initial: probability of each initial state [S].
        transition: probability of the next state [S, A, S].
        reward: mean reward without the bonus [S, A].
        bonus: factor of ``gain`` [S, A].
        horizon: largest number of decisions H of a user.
        gone: states of users who have left [S]; they are absorbing and have no reward.
        draw: function that draws rewards from (rng, means, states, actions); None: the means.
        metrics: further outcomes of 0 or 1, by name, with their probabilities [S, A].
    """

    initial: Float64Array
    transition: Float64Array
    reward: Float64Array
    bonus: Float64Array
    horizon: int
    gone: BoolArray
    draw: Draw | None = None
    metrics: Mapping[str, Float64Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        s, a = self.reward.shape
        if self.transition.shape != (s, a, s) or self.bonus.shape != (s, a):
            raise ConfigError(
                expected=f"transition {(s, a, s)} and bonus {(s, a)}",
                found=f"{self.transition.shape} and {self.bonus.shape}",
            )
        if not np.allclose(self.transition.sum(axis=2), 1) or not np.isclose(self.initial.sum(), 1):
            raise ConfigError(expected="distributions over states", found="sums other than 1")

    # ------------------------------------------------------------------ exact values

    def visits(self, policy: Float64Array) -> Float64Array:
        """The expected number of decisions per state and action [S, A]."""
        probs, total = self.initial, np.zeros_like(self.reward)
        for _ in range(self.horizon):
            alive = np.where(self.gone, 0.0, probs)
            taken = alive[:, None] * policy
            total += taken
            probs = np.einsum("sa,sat->t", taken, self.transition) + np.where(self.gone, probs, 0.0)
        return total

    def value(self, policy: Float64Array, gain: float) -> float:
        """The expected sum of a user's rewards under a table of probabilities [S, A]."""
        return float(np.sum(self.visits(policy) * (self.reward + gain * self.bonus)))

    def metric_value(self, name: str, policy: Float64Array) -> float:
        """The expected sum of a metric."""
        return float(np.sum(self.visits(policy) * self.metrics[name]))

    def gain_for(self, lift: float, policy: Float64Array, mu: Float64Array) -> float:
        """The gain at which the value of ``policy`` is ``(1 + lift)`` times that of ``mu``."""
        of_pi, of_mu = self.visits(policy), self.visits(mu)
        plain = float(np.sum(of_pi * self.reward) - (1 + lift) * np.sum(of_mu * self.reward))
        slope = float(np.sum(of_pi * self.bonus) - (1 + lift) * np.sum(of_mu * self.bonus))
        steps = float(np.sum((of_pi - of_mu) * self.bonus))
        if slope * steps <= 1e-9 * steps**2:  # the bonus cannot bring such a lift
            raise ConfigError(
                expected="a lift that the bonus can bring", found=f"{lift:.2g}", where="gain_for"
            )
        return -plain / slope

    # ------------------------------------------------------------------ users

    def simulate(
        self,
        policy: Float64Array,
        gain: float,
        initial: Int64Array,
        rng: np.random.Generator,
        coins: Float64Array,
    ) -> Rollout:
        """Simulate users from their initial states [n]; ``coins`` [n, H] in [0, 1) choose the actions."""
        n, by_action = len(initial), np.cumsum(policy, axis=1)
        by_state = np.cumsum(self.transition, axis=2)
        states = np.empty((n, self.horizon + 1), dtype=np.int64)
        actions = np.empty((n, self.horizon), dtype=np.int64)
        states[:, 0] = initial
        for t in range(self.horizon):
            actions[:, t] = _drawn(by_action[states[:, t]], coins[:, t])
            states[:, t + 1] = _drawn(by_state[states[:, t], actions[:, t]], rng.random(n))
        here = states[:, :-1]
        means = (self.reward + gain * self.bonus)[here, actions]
        rewards = means if self.draw is None else self.draw(rng, means, here, actions)
        chances = {name: table[here, actions] for name, table in self.metrics.items()}
        return Rollout(
            states=states,
            actions=actions,
            rewards=rewards,
            counts=self.horizon - self.gone[states[:, :-1]].sum(axis=1),
            left=self.gone[states[:, -1]],
            metrics={name: (rng.random(p.shape) < p).astype(np.float64) for name, p in chances.items()},
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Rollout:
    """H simulated decisions of n users; entries after a user has left are meaningless."""

    states: Int64Array  # [n, H + 1]
    actions: Int64Array  # [n, H]
    rewards: Float64Array  # [n, H]
    counts: Int64Array  # [n] number of decisions before the user left
    left: BoolArray  # [n] whether the user has left by the horizon
    metrics: Mapping[str, Float64Array]  # [n, H] each


def with_types(chain: Chain, shares: Float64Array) -> Chain:
    """A copy of the chain for each of K permanent user types; state s of type k becomes k S + s."""
    kinds, size = len(shares), len(chain.initial)
    transition = np.zeros((kinds * size, chain.reward.shape[1], kinds * size))
    for k in range(kinds):
        transition[k * size : (k + 1) * size, :, k * size : (k + 1) * size] = chain.transition
    return Chain(
        initial=np.concatenate([share * chain.initial for share in shares]),
        transition=transition,
        reward=np.tile(chain.reward, (kinds, 1)),
        bonus=np.tile(chain.bonus, (kinds, 1)),
        horizon=chain.horizon,
        gone=np.tile(chain.gone, kinds),
        draw=chain.draw,
        metrics={name: np.tile(table, (kinds, 1)) for name, table in chain.metrics.items()},
    )


def _drawn(cumulative: Float64Array, uniform: Float64Array) -> Int64Array:
    """Draw one index per row of cumulative probabilities [n, m]."""
    place: Int64Array = np.minimum((cumulative < uniform[:, None]).sum(axis=1), cumulative.shape[1] - 1)
    return place
