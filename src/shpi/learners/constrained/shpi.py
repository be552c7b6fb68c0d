"""SHPI's advantages under the constraint of SPIBB or MBS: a setting of `OfflineSHPI` without tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shpi._core.arguments import without
from shpi._core.executors import Executor
from shpi.advantages import Horizon
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.learners.constrained.mbs import MBS
from shpi.learners.constrained.spibb import SPIBB
from shpi.learners.improved import ImprovedPolicy
from shpi.learners.named import configured
from shpi.learners.offline import OfflineSHPI

_IN_SETTINGS = {
    name: f"write settings={{'{name}': ...}}"
    for name in ("iterations", "weight_clip", "value", "oracle", "confidence", "tolerance")
}


@without(
    held_out="leave it out: this setting makes no tests; compare it with shpi.learners.Best", **_IN_SETTINGS
)
@dataclass(frozen=True, kw_only=True)
class ConstrainedSHPI:
    """Policy iteration with k-step advantages among the policies that a constraint allows.

    Args:
        constraint: `SPIBB(min_count=...)` or `MBS(density=...)`, of which only the constraint is used.
        k: number of steps to look ahead, or "session".
        gamma: the discount.
        settings: further settings of `OfflineSHPI`.
        seed: random seed.
    """

    constraint: SPIBB | MBS = field(default_factory=SPIBB)
    k: Horizon = "session"
    gamma: float = 0.99
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self.shpi()

    @classmethod
    def mbs(cls, **changes: Any) -> ConstrainedSHPI:
        """SHPI with the constraint of MBS in place of SPIBB's."""
        return cls(**({"constraint": MBS()} | changes))

    def shpi(self) -> OfflineSHPI:
        """The setting of SHPI that this is."""
        fixed = {"k": self.k, "constraint": self.constraint, "tested": False}
        return configured(fixed, self.settings, paper=False, gamma=self.gamma, seed=self.seed)

    def fit(self, logs: LoggedData | ShardedLog, *, executor: Executor | None = None) -> ImprovedPolicy:
        """Run the algorithm on a log with propensities."""
        return self.shpi().fit(logs, executor=executor)
