"""The audit of a log in shards: counts of the whole log, distributions of a sample of its users.

Rows, users, sessions, endings and actions are counted over all shards. Facts that need rows together, like
quantiles, propensities and columns that leak, come from users drawn by their hash; a finding says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shpi._core.executors import Executor
from shpi.data.audit.checks import find
from shpi.data.audit.facts import action_facts
from shpi.data.audit.findings import Finding
from shpi.data.audit.report import AuditReport, audit
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.passes.over import add_up, sample
from shpi.protocols import Int64Array

MOST_ROWS = 500_000  # decisions in the sample


@dataclass(frozen=True, kw_only=True, eq=False)
class Counts:
    """The counts that add up over shards."""

    structure: Int64Array  # [6] users, trajectories, sessions, terminated, truncated, last contexts seen
    actions: Int64Array  # [A]

    @classmethod
    def of(cls, logs: LoggedData) -> Counts:
        """The counts of one shard."""
        ends = logs.terminated
        known = int((~ends & logs.final_observed).sum())
        structure = (logs.n_users, logs.n_trajectories, logs.n_sessions, ends.sum(), (~ends).sum(), known)
        return cls(
            structure=np.array(structure, dtype=np.int64),
            actions=np.bincount(logs.actions, minlength=logs.n_actions).astype(np.int64),
        )

    def __add__(self, other: Counts) -> Counts:
        return Counts(structure=self.structure + other.structure, actions=self.actions + other.actions)


def audit_shards(
    logs: ShardedLog, *, executor: Executor | None = None, most_rows: int = MOST_ROWS, seed: int = 0
) -> AuditReport:
    """Count, check and judge a log in shards; see the module docstring.

    Args:
        logs: the log.
        executor: runs the passes over the shards; None is this process.
        most_rows: number of decisions in the sample.
        seed: random seed of the sample.
    """
    some_users = sample(logs, most_rows, seed=seed, executor=executor)
    report = audit(some_users)
    if len(some_users) == logs.rows:
        return report
    counts = add_up(logs, Counts.of, executor=executor)
    users, trajectories, sessions, terminated, truncated, final_observed = counts.structure.tolist()
    facts = replace(
        report.facts,
        ledger=logs.ledger,
        structure=replace(
            report.facts.structure,
            decisions=logs.rows,
            users=users,
            trajectories=trajectories,
            sessions=sessions,
            terminated=terminated,
            truncated=truncated,
            final_observed=final_observed,
        ),
        actions=action_facts(some_users, counts.actions),
    )
    return replace(report, facts=facts, findings=(*find(some_users, facts), _sampled(some_users, logs)))


def _sampled(some_users: LoggedData, logs: ShardedLog) -> Finding:
    return Finding(
        severity="info",
        code="sampled",
        message=f"Rows, users, sessions, endings and actions are counted over all {logs.rows:,} decisions; "
        f"distributions, rewards, propensities and columns are those of {len(some_users):,} decisions of "
        f"{some_users.n_users:,} users, drawn by their hash.",
        remedy="nothing: with so many, only what concerns a few users in a million can be missed",
    )
