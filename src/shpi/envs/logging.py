"""`LoggingPolicy`: the behaviour policies mu(epsilon) of the paper, with exact propensities.

    mu(a|x) = epsilon / |C(x)| + (1 - epsilon) pi_agent(a|x)         C(x): the allowed actions

epsilon = 0 is the trained agent itself, 0.3 a realistic logging policy, 1 uniform exploration.

`with_q_shares` replaces these propensities by what the authors' release reports:

    P_t = 1 / A if the action was drawn at random, Q(x, a*) / sum_b Q(x, b) if it was the greedy one

That is not a probability: it can be negative or above 1 if Q has both signs, and is near 1 / A if its values
are similar. Do not give such a log to learners that need probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features.parts import saveable
from shpi.policies import Greedy, PolicyMethods, UniformPolicy
from shpi.protocols import BoolArray, Float64Array, FloatArray, Policy, Simulator


@saveable("envs/logging-policy")
@dataclass(frozen=True, eq=False, init=False, repr=False)
class LoggingPolicy(PolicyMethods):
    """A trained agent that decides uniformly at random with probability epsilon.

    Args:
        simulator: the simulator, whose trained agent is loaded, unless ``agent`` is given.
        epsilon: the share of random decisions.
        agent: any policy in place of the trained one; then no simulator is needed.
        world: the name of the world, stored with a saved policy.
    """

    agent: Policy
    epsilon: float
    world: str

    def __init__(
        self,
        simulator: Simulator | None = None,
        epsilon: float = 0.3,
        agent: Policy | None = None,
        *,
        world: str | None = None,
    ) -> None:
        if not 0 <= epsilon <= 1:
            raise ConfigError(expected="epsilon in [0, 1]", found=str(epsilon), where="LoggingPolicy")
        if agent is None:
            if simulator is None:
                raise ConfigError(expected="a simulator or an agent", found="neither", where="LoggingPolicy")
            agent = self._trained(simulator, epsilon)
        if simulator is not None and agent.n_actions != simulator.n_actions:
            raise ConfigError(
                expected=f"an agent over the {simulator.n_actions} actions of '{simulator.name}'",
                found=f"one over {agent.n_actions}",
            )
        object.__setattr__(self, "agent", agent)
        object.__setattr__(self, "epsilon", float(epsilon))
        object.__setattr__(self, "world", world or (simulator.name if simulator is not None else ""))

    @staticmethod
    def _trained(simulator: Simulator, epsilon: float) -> Policy:
        from shpi.envs.agents import load_agent

        # Pure exploration needs no agent, so it also works in worlds that have none.
        return UniformPolicy(simulator.n_actions) if epsilon == 1 else load_agent(simulator)

    @property
    def n_actions(self) -> int:
        """|A|."""
        return self.agent.n_actions

    @property
    def width(self) -> int | None:
        """The dimension d of a context, if the agent knows it."""
        width: int | None = getattr(self.agent, "width", None)
        return width

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """mu(a|x), [n, A]."""
        noise = UniformPolicy(self.n_actions).action_probs(contexts, candidates)
        if self.epsilon == 1:
            return noise
        return self.epsilon * noise + (1.0 - self.epsilon) * self.agent.action_probs(contexts, candidates)


def with_q_shares(logs: LoggedData, agent: Greedy, epsilon: float, *, seed: int) -> LoggedData:
    """A log of `LoggingPolicy(epsilon=epsilon, agent=agent)` with the propensities that the release reports.

    Whether a greedy action was a random draw is drawn here, given the action: the distribution is the same.

    Args:
        logs: a log with the contexts in which the actions were chosen.
        agent: the greedy policy of a Q-network.
        epsilon: epsilon of mu.
        seed: random seed of these draws.
    """
    scores = agent.scorer.scores(logs.contexts)  # [n, A]
    n, count = scores.shape
    best = scores.argmax(axis=1)
    chance = epsilon / count / (1.0 - epsilon + epsilon / count)  # P(the greedy action was drawn at random)
    drawn = (logs.actions != best) | (np.random.default_rng(seed).random(n) < chance)
    shares = scores[np.arange(n), best] / scores.sum(axis=1)
    return replace(logs, propensities=np.where(drawn, 1.0 / count, shares), propensity_mode="logged")
