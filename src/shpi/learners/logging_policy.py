"""The logging policy itself as a learner: the baseline that the others must beat."""

from __future__ import annotations

from dataclasses import dataclass, field

from shpi._core.executors import Executor
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.errors import ConfigError
from shpi.learners.cloning import BehaviourCloning
from shpi.protocols import Policy


@dataclass(frozen=True, kw_only=True)
class LoggedBehaviour:
    """mu: the logging policy if you pass it, otherwise a clone.

    Args:
        policy: the logging policy, if you have it; it is returned unchanged.
        cloning: how to clone it otherwise.
    """

    policy: Policy | None = None
    cloning: BehaviourCloning = field(default_factory=BehaviourCloning)

    def fit(self, logs: LoggedData | ShardedLog, *, executor: Executor | None = None) -> Policy:
        """The given policy, or the clone."""
        if self.policy is None:
            return self.cloning.fit(logs, executor=executor)
        if self.policy.n_actions != len(logs.action_space):
            raise ConfigError(
                expected=f"a policy over the log's {len(logs.action_space)} actions",
                found=f"one over {self.policy.n_actions}",
                where="LoggedBehaviour",
            )
        return self.policy
