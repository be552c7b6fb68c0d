"""`LoggingPolicy`: the behaviour policies mu(epsilon) of the paper, with exact propensities.

    mu(a|x) = epsilon / |C(x)| + (1 - epsilon) pi_agent(a|x)         C(x): the allowed actions

epsilon = 0 is the trained agent itself, 0.3 a realistic logging policy, 1 uniform exploration.
"""

from __future__ import annotations

from dataclasses import dataclass

from shpi.errors import ConfigError
from shpi.features.parts import saveable
from shpi.policies import PolicyMethods, UniformPolicy
from shpi.protocols import BoolArray, Float64Array, FloatArray, Policy, Simulator


@saveable("envs/logging-policy")
@dataclass(frozen=True, eq=False, init=False)
class LoggingPolicy(PolicyMethods):
    """A trained agent that decides uniformly at random with probability epsilon.

    Args:
        simulator: the world; its trained agent is loaded, unless ``agent`` is given.
        epsilon: the share of random decisions.
        agent: any policy in place of the trained one; then no simulator is needed.
        world: the name of the world, for whoever reads a saved policy.
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

        # Pure exploration asks no agent, so it also works in worlds that have none.
        return UniformPolicy(simulator.n_actions) if epsilon == 1 else load_agent(simulator)

    @property
    def n_actions(self) -> int:
        """|A|."""
        return self.agent.n_actions

    @property
    def width(self) -> int | None:
        """The width d of a context, where the agent says it."""
        width: int | None = getattr(self.agent, "width", None)
        return width

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """mu(a|x), [n, A]."""
        noise = UniformPolicy(self.n_actions).action_probs(contexts, candidates)
        if self.epsilon == 1:
            return noise
        return self.epsilon * noise + (1.0 - self.epsilon) * self.agent.action_probs(contexts, candidates)
