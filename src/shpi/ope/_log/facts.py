"""What must be known of a log before the first pass, and whether policy and log belong together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from shpi.data._log.slicing import cut
from shpi.data.logged import LoggedData
from shpi.data.question import Endings
from shpi.data.shards import ShardedLog
from shpi.errors import ConfigError, DataError
from shpi.ope.settings import Rewards
from shpi.policies.files import PolicyFile
from shpi.protocols import BoolArray, Float64Array, Int64Array, Policy
from shpi.values.transitions import rewards_of


def check_policy(policy: Any) -> None:
    """Refuse what is no policy."""
    if not isinstance(policy, Policy):
        raise ConfigError(
            expected="a policy (n_actions and action_probs)",
            found=type(policy).__name__,
            remedy="load one with shpi.load_policy(folder)",
        )


def check_match(policy: Policy, logs: LoggedData) -> None:
    """Refuse a policy for other actions, or for contexts of another width."""
    if policy.n_actions != logs.n_actions:
        raise ConfigError(
            expected=f"a policy over the {logs.n_actions} actions of the log",
            found=f"one over {policy.n_actions}",
            remedy="read the log with the action_space= of the log that the policy was learned from",
        )
    width: int | None = getattr(policy, "width", None)
    if width is not None and width != logs.schema.width:
        raise ConfigError(
            expected=f"a policy for contexts of {logs.schema.width} dimensions, as in the log",
            found=f"one for {width}",
            remedy="read the log with the schema= of the log that the policy was learned from",
        )


def check_saved(saved: PolicyFile, logs: LoggedData | ShardedLog) -> None:
    """Refuse a saved policy whose manifest names other actions or other columns than the log has."""
    if saved.actions is not None and saved.actions.ids != logs.action_space.ids:
        known = set(logs.action_space.ids)
        foreign = [action for action in saved.actions.ids if action not in known][:3]
        raise ConfigError(
            expected=f"the {len(logs.action_space)} actions of the log, in its order",
            found=f"actions that the log does not know, such as {foreign}" if foreign else "another order",
            where="the policy's manifest",
            remedy="read the log with the action_space= of the log that the policy was learned from",
        )
    if saved.schema is not None and saved.schema.dimensions != logs.schema.dimensions:
        other = [
            dimension for dimension in saved.schema.dimensions if dimension not in logs.schema.dimensions
        ][:3]
        raise ConfigError(
            expected=f"the {logs.schema.width} context dimensions of the log, in its order",
            found=f"dimensions that the log does not have, such as {other}" if other else "another order",
            where="the policy's manifest",
            remedy="read the log with the schema= of the log that the policy was learned from",
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """What must be known of all chunks before the first pass."""

    users: int
    lengths: Int64Array  # [N]
    terminated: BoolArray  # [N]
    least: float
    most: float
    mode: str
    endings: Endings
    taken: Int64Array  # [A] how often each action was taken, within the horizon
    sessions: int  # within the horizon
    times: tuple[int, int]  # the first and the last within the horizon
    end: int  # the last time, whatever the horizon

    @property
    def longest(self) -> int:
        """The most decisions of a trajectory."""
        return int(self.lengths.max())

    @classmethod
    def of(
        cls, policy: Policy, logs: LoggedData, metric: Rewards | None, horizon: int | None = None
    ) -> Facts:
        """Those of one chunk."""
        check_match(policy, logs)
        rewards = metric_of(logs, metric)
        known = None if metric is not None else logs.reward_observed
        observed = rewards if known is None else rewards[known]
        if not len(observed):
            raise DataError(
                expected="at least one decision whose reward was observed",
                found="none: every reward is censored",
                remedy="wait until the futures that define the reward have passed, or use a shorter one",
            )
        steps = logs.steps
        counted = slice(None) if horizon is None else steps < horizon
        starts = logs.session_offsets[:-1]
        return cls(
            users=logs.n_users,
            lengths=np.diff(logs.offsets),
            terminated=logs.terminated,
            least=float(observed.min()),
            most=float(observed.max()),
            mode=logs.propensity_mode,
            endings=logs.endings,
            taken=np.bincount(logs.actions[counted], minlength=logs.n_actions).astype(np.int64),
            sessions=len(starts) if horizon is None else int((steps[starts] < horizon).sum()),
            times=(int(logs.times[counted].min()), int(logs.times[counted].max())),
            end=int(logs.times.max()),
        )


def survival(
    facts: list[Facts], horizon: int, complete: bool
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """How many decide at each step; the chance G_t not to be censored before it; log sum b of the ended."""
    lengths = np.concatenate([fact.lengths for fact in facts])
    ended = np.concatenate([fact.terminated for fact in facts]) | complete
    stops = np.bincount(np.minimum(lengths, horizon), minlength=horizon + 1)  # after so many decisions
    alive = len(lengths) - np.cumsum(stops)[:horizon]  # [H] who decide at step t
    if (alive == 0).any():
        raise ConfigError(
            expected=f"a horizon of at most {int(np.flatnonzero(alive == 0)[0])}, the longest trajectory",
            found=str(horizon),
        )
    gone = np.bincount(np.minimum(lengths[ended], horizon), minlength=horizon + 1)[1:horizon]
    going = alive[:-1] - gone  # those who decided at t and did not terminate after it
    share = np.where(going > 0, alive[1:] / np.maximum(going, 1), 1.0)
    uncensored = np.append(1.0, np.cumprod(share))
    with np.errstate(divide="ignore"):
        before = np.log(np.append(0.0, np.cumsum(gone / uncensored[:-1])))
    return alive.astype(np.float64), uncensored, before


def raw_chunks(source: Any) -> Iterator[LoggedData]:
    """The logs behind a source: itself, or its shards."""
    if isinstance(source, LoggedData):
        if not len(source):
            raise DataError(expected="a log with decisions", found="an empty one")
        yield source
    elif isinstance(source, ShardedLog):
        yield from source
    else:
        raise ConfigError(
            expected="a LoggedData or a ShardedLog",
            found=type(source).__name__,
            remedy="read the table first: shpi.LoggedData.read(source, columns)",
        )


def metric_of(logs: LoggedData, metric: Rewards | None) -> Float64Array:
    """The rewards that are evaluated [n]."""
    if metric is None:
        return rewards_of(logs)
    if isinstance(metric, str):
        if metric not in logs.metrics:
            raise ConfigError(expected=f"one of the metrics {sorted(logs.metrics)}", found=repr(metric))
        return logs.metrics[metric]
    values = np.asarray(metric(logs), dtype=np.float64)
    if values.shape != (len(logs),) or not np.isfinite(values).all():
        raise DataError(expected=f"{len(logs)} finite rewards", found=f"shape {values.shape}", where="metric")
    return values


def cut_at(logs: LoggedData, horizon: int) -> LoggedData:
    """The first decisions of every trajectory."""
    if int(np.diff(logs.offsets).max()) <= horizon:
        return logs
    return cut(logs, logs.steps < horizon)


raw_parts = raw_chunks  # its name in version 0.1
