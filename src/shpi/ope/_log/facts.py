"""Facts about a log that an evaluation needs before its first pass, and checks that policy and log match."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from shpi.data._log.slicing import cut
from shpi.data.logged import LoggedData
from shpi.data.question import Endings
from shpi.data.shards import ShardedLog
from shpi.errors import ConfigError, DataError
from shpi.ope.settings import Rewards, Settings
from shpi.policies.files import PolicyFile
from shpi.protocols import BoolArray, Float64Array, Int64Array, Policy
from shpi.values.transitions import goes_on, rewards_of

# "reward": r_t.  "next": the next context, or that there is none.  "inside": the same, not counting final
# contexts, where mu is not logged.  "return": "reward" and "next".  "paired return": "reward" and "inside".
Known = Literal["reward", "next", "inside", "return", "paired return"]
KINDS: tuple[Known, ...] = get_args(Known)


def check_match(policy: Policy, logs: LoggedData) -> None:
    """Refuse a policy for another number of actions, or for contexts of another width."""
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
    """What the first estimator needs to know about the whole log: the sum (``+``) of the chunks' facts."""

    users: int
    lengths: Int64Array  # [2, L + 1] numbers of trajectories: truncated or terminated, by length
    known: Int64Array  # [6, 2, L] numbers of decisions: all and each of KINDS; terminated or goes on; step
    least: float  # the smallest observed reward; infinity if none is observed
    most: float  # the largest observed reward; -infinity if none is observed
    mode: str
    endings: Endings
    taken: Int64Array  # [A] how often each action was taken, within the horizon
    sessions: int  # number of sessions that start within the horizon
    times: tuple[int, int]  # the first and the last time within the horizon
    end: int  # the last time in the log, also beyond the horizon

    @classmethod
    def of(
        cls,
        logs: LoggedData,
        policy: Policy,
        metric: Rewards | None,
        settings: Settings,
    ) -> Facts:
        """The facts of one chunk."""
        check_match(policy, logs)
        rewards = metric_of(logs, metric)
        known = None if metric is not None else logs.reward_observed
        observed = rewards if known is None else rewards[known]
        steps, horizon = logs.steps, settings.horizon
        counted = slice(None) if horizon is None else steps < horizon
        starts = logs.session_offsets[:-1]
        lengths = np.diff(logs.offsets)
        # Numbers of decisions by step: all of them, and the known ones of each kind; see `known_rows`.
        short = logs if horizon is None else cut_at(logs, horizon)
        if settings.truncated == "complete" or (settings.truncated is None and logs.endings == "unknown"):
            short = replace(short, terminated=np.ones(short.n_trajectories, dtype=bool))
        longest = int(short.steps.max()) + 1
        key = goes_on(short) * np.int64(longest) + short.steps
        seen = np.ones(len(short), dtype=bool) if known is None else known[counted]
        rows = [np.ones(len(short), dtype=bool), *(known_rows(short, seen, what) for what in KINDS)]
        counts = np.stack([np.bincount(key[which], minlength=2 * longest) for which in rows])
        return cls(
            users=logs.n_users,
            lengths=np.stack(
                [
                    np.bincount(lengths[logs.terminated == ended], minlength=int(lengths.max()) + 1)
                    for ended in (False, True)
                ]
            ),
            known=counts.reshape(len(rows), 2, longest).astype(np.int64),
            least=float(observed.min(initial=np.inf)),
            most=float(observed.max(initial=-np.inf)),
            mode=logs.propensity_mode,
            endings=logs.endings,
            taken=np.bincount(logs.actions[counted], minlength=logs.n_actions).astype(np.int64),
            sessions=len(starts) if horizon is None else int((steps[starts] < horizon).sum()),
            times=(int(logs.times[counted].min()), int(logs.times[counted].max())),
            end=int(logs.times.max()),
        )

    def __add__(self, other: Facts) -> Facts:
        return Facts(
            users=self.users + other.users,
            lengths=_added(self.lengths, other.lengths),
            known=_added(self.known, other.known),
            least=min(self.least, other.least),
            most=max(self.most, other.most),
            mode=self.mode,
            endings="unknown" if "unknown" in (self.endings, other.endings) else self.endings,
            taken=self.taken + other.taken,
            sessions=self.sessions + other.sessions,
            times=(min(self.times[0], other.times[0]), max(self.times[1], other.times[1])),
            end=max(self.end, other.end),
        )

    def known_shares(self, horizon: int) -> dict[Known, Float64Array]:
        """For each kind, the share of known decisions by step [2, H]: user terminated [0], went on [1]."""
        everyone = self.known[0, :, :horizon].astype(np.float64)
        shares: dict[Known, Float64Array] = {}
        for place, what in enumerate(KINDS, start=1):
            counts = self.known[place, :, :horizon].astype(np.float64)
            if what in ("return", "paired return"):  # rewards after the horizon do not count
                counts[:, horizon - 1] = self.known[1, :, horizon - 1]
            share = counts / np.where(everyone > 0, everyone, 1.0)
            if what not in ("next", "inside"):
                # If nothing is known of the terminated, or of those who went on, at a step, pool the two.
                alone = ((everyone > 0) & (counts == 0)).any(axis=0)
                both = counts.sum(axis=0) / np.maximum(everyone.sum(axis=0), 1.0)
                share = np.where(alone, both, share)
            shares[what] = share
        return shares


def known_rows(logs: LoggedData, observed: BoolArray, what: Known) -> BoolArray:
    """The decisions for which this quantity is known [n], ignoring the horizon; see `Known`."""
    if what == "reward":
        return observed
    follows = np.ones(len(logs), dtype=bool)
    next_observed = logs.final_observed if what in ("next", "return") else False
    follows[logs.offsets[1:] - 1] = logs.terminated | next_observed
    return follows & observed if what in ("return", "paired return") else follows


def _added(left: Int64Array, right: Int64Array) -> Int64Array:
    """The sum of two tables whose last axes may differ in length."""
    shape = (*left.shape[:-1], max(left.shape[-1], right.shape[-1]))
    total = np.zeros(shape, dtype=np.int64)
    total[..., : left.shape[-1]] += left
    total[..., : right.shape[-1]] += right
    return total


def survival(facts: Facts, horizon: int, complete: bool) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Per step [H]: trajectories with a decision, G_t, and log sum 1/G of those that terminated before.

    G_t is the probability not to be censored before step t.
    """
    longest = facts.lengths.shape[1] - 1
    by_length = np.zeros((2, max(horizon, longest) + 1), dtype=np.int64)
    by_length[:, : longest + 1] = facts.lengths
    by_length[:, horizon] = by_length[:, horizon:].sum(axis=1)
    stops = by_length[:, : horizon + 1].sum(axis=0)  # [H + 1] trajectories that stop after so many decisions
    alive = stops.sum() - np.cumsum(stops)[:horizon]  # [H] trajectories with a decision at step t
    if (alive == 0).any():
        raise ConfigError(
            expected=f"a horizon of at most {int(np.flatnonzero(alive == 0)[0])}, the longest trajectory",
            found=str(horizon),
        )
    gone = (stops if complete else by_length[1])[1:horizon]
    going = alive[:-1] - gone  # trajectories with a decision at t that did not terminate after it
    share = np.where(going > 0, alive[1:] / np.maximum(going, 1), 1.0)
    uncensored = np.append(1.0, np.cumprod(share))
    with np.errstate(divide="ignore"):
        before = np.log(np.append(0.0, np.cumsum(gone / uncensored[:-1])))
    return alive.astype(np.float64), uncensored, before


def check_source(source: Any) -> None:
    """Raise an error unless this is a log with decisions."""
    if not isinstance(source, LoggedData | ShardedLog):
        raise ConfigError(
            expected="a LoggedData or a ShardedLog",
            found=type(source).__name__,
            remedy="read the table first: shpi.LoggedData.read(source, columns)",
        )
    if not len(source):
        raise DataError(expected="a log with decisions", found="an empty one")


def raw_chunks(source: Any) -> Iterator[LoggedData]:
    """Iterate over the logs of a source: the log itself, or its shards."""
    check_source(source)
    if isinstance(source, LoggedData):
        yield source
    else:
        yield from source


def metric_of(logs: LoggedData, metric: Rewards | None) -> Float64Array:
    """The rewards to evaluate [n]."""
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
    """Cut every trajectory after its first ``horizon`` decisions."""
    if int(np.diff(logs.offsets).max()) <= horizon:
        return logs
    return cut(logs, logs.steps < horizon)


raw_parts = raw_chunks  # its name in version 0.1
