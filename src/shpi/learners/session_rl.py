"""Session-based reinforcement learning: the sum of rewards to the end of the session, and nothing after it.

    A(x_t, a_t) = E[ sum_{m < session end} w gamma^m r_{t+m} ]          SHPI with V = 0 (the paper, section 4)

It cannot tell a session that brings the user back from one that drives the user away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shpi._core.executors import Executor
from shpi.advantages import Horizon
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.learners.improved import ImprovedPolicy
from shpi.learners.named import configured
from shpi.learners.offline import OfflineSHPI
from shpi.values import Constant


@dataclass(frozen=True, kw_only=True)
class SessionRL:
    """SHPI with V = 0 at the end of each session, without tests: the paper's truncated horizon.

    Args:
        k: "session", or an int for logs whose sessions are not marked.
        gamma: the discount.
        paper: start from `OfflineSHPI.paper()` rather than from the defaults.
        settings: further settings of `OfflineSHPI`, all but the horizon, the value and the tests.
        seed: random seed.
    """

    k: Horizon = "session"
    gamma: float = 0.99
    paper: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self.shpi()

    def shpi(self) -> OfflineSHPI:
        """The equivalent `OfflineSHPI`."""
        fixed = {"k": self.k, "value": Constant(0.0), "tested": False}  # the test would look past the session
        return configured(fixed, self.settings, paper=self.paper, gamma=self.gamma, seed=self.seed)

    def fit(self, logs: LoggedData | ShardedLog, *, executor: Executor | None = None) -> ImprovedPolicy:
        """Policy iteration with advantages that stop where the session does."""
        return self.shpi().fit(logs, executor=executor)
