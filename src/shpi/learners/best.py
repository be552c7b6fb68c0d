"""Choose among SHPI and other learners by one test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec

from shpi._core.executors import Executor
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.learners.bandit import ContextualBandit
from shpi.learners.base import Learner
from shpi.learners.improved import ImprovedPolicy
from shpi.learners.offline import OfflineSHPI


def usual_rivals() -> dict[str, Learner]:
    """A bandit, and BCQ if torch is installed."""
    rivals: dict[str, Learner] = {"bandit": ContextualBandit()}
    if find_spec("torch") is not None:
        from shpi.learners.neural.bcq import DiscreteBCQ

        rivals["bcq"] = DiscreteBCQ(progress=False)
    return rivals


@dataclass(frozen=True, kw_only=True)
class Best:
    """Return the best of several learners by SHPI's test; another learner must be proven better than SHPI.

    Args:
        learners: the rivals by name; each is fitted three times, to all users and to each half.
        shpi: the learner that the rivals have to beat.
        gamma: the discount of the test.
        seed: random seed of SHPI and of the test.
    """

    learners: Mapping[str, Learner] = field(default_factory=usual_rivals)
    shpi: OfflineSHPI = field(default_factory=OfflineSHPI)
    gamma: float = 0.99
    seed: int = 0

    def fit(self, logs: LoggedData | ShardedLog, *, executor: Executor | None = None) -> ImprovedPolicy:
        """The winner, with every candidate among its trials."""
        learner = replace(self.shpi, rivals=self.learners, gamma=self.gamma, seed=self.seed)
        return learner.fit(logs, executor=executor)
