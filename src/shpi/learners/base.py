"""The protocol of a learner: configuration with one method, ``fit``, that returns a policy.

There are two kinds:

    Learner          fit(logs) -> policy        learns from a log of another policy's decisions
    OnlineLearner    fit(simulator) -> policy   learns from its own decisions

`shpi.testing.check_learner` and `check_online_learner` check the rest of the contract.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from shpi._core.executors import Executor
from shpi._core.threads import one_thread
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.errors import DataError
from shpi.passes import sample
from shpi.policies import ConstantPolicy, Greedy, PolicyDensity, SupportLimited, UniformPolicy, with_items
from shpi.policies.scorers import Scorer
from shpi.policies.training_users import TrainingUsers, remember
from shpi.protocols import BoolArray, Float64Array, Policy, Simulator

P = TypeVar("P")

MOST_CELLS, MOST_ROWS = 50_000_000, 500_000  # decisions times actions or columns, and decisions, looked at
ROWS_PER_ACTION, MANY_CELLS = 10, 1_000_000_000  # decisions that an action needs, if so many pairs allow it


@runtime_checkable
class Learner(Protocol):
    """Learns from a log. `fit` changes neither the log nor the learner.

    The learners of shpi also take a log in shards, and an ``executor`` that processes the shards.
    """

    def fit(self, logs: LoggedData) -> Policy:
        """Learn a policy from a log."""
        ...


@runtime_checkable
class OnlineLearner(Protocol):
    """Learns by acting in a simulator, which it resets and leaves in any state."""

    def fit(self, simulator: Simulator) -> Policy:
        """Learn a policy by acting in a simulator."""
        ...


def from_log(fit: Callable[[Any, LoggedData], P]) -> Callable[..., P]:
    """Decorate a learner's ``fit``: reject input that is not a log, and attach the log's items and users.

    If the log is in shards, the learner gets a sample of its users (`learned_from`), drawn by ``executor``.
    """

    @wraps(fit)
    @one_thread
    def checked(self: Any, logs: LoggedData | ShardedLog, *, executor: Executor | None = None) -> P:
        words = ""
        if isinstance(logs, ShardedLog):
            whole, logs = logs, learned_from(logs, seed=getattr(self, "seed", 0), executor=executor)
            words = sampled_words(logs, whole)
        check_log(logs, type(self).__name__)
        policy = with_items(fit(self, logs), schema=logs.schema, actions=logs.action_space)
        if words and hasattr(policy, "notes"):
            policy = replace(policy, notes=(*policy.notes, words))  # type: ignore[type-var]
        remember(policy, TrainingUsers.of(logs))
        return policy

    vars(checked)["takes_shards"] = True
    return checked


def fit_anywhere(learner: Learner, logs: LoggedData | ShardedLog, executor: Executor | None = None) -> Policy:
    """Fit any learner to a log in memory or in shards: one without support for shards gets a sample."""
    fit: Any = learner.fit
    if isinstance(logs, ShardedLog) and getattr(fit, "takes_shards", False):
        policy: Policy = fit(logs, executor=executor)
        return policy
    if isinstance(logs, ShardedLog):
        logs = learned_from(logs, seed=getattr(learner, "seed", 0), executor=executor)
    return learner.fit(logs)


def learned_from(logs: LoggedData | ShardedLog, *, seed: int, executor: Executor | None = None) -> LoggedData:
    """The log, or a sample of as many users as memory, time and the actions allow, drawn by their hash.

    The sample is the same in memory and in shards, so both give the same policy.

    Args:
        logs: the log.
        seed: random seed of the draw.
        executor: processes the shards; None is this process.
    """
    actions = max(len(logs.action_space), 1)
    pairs = max(MOST_CELLS // actions, min(ROWS_PER_ACTION * actions, MANY_CELLS // actions))
    most = min(MOST_ROWS, MOST_CELLS // max(logs.schema.width, 1), pairs)
    return sample(logs, most, seed=seed, least=1, executor=executor)


def sampled_words(logs: LoggedData, whole: ShardedLog) -> str:
    """A note on the sample that a policy was learned from; empty if that is the whole log."""
    if len(logs) == whole.rows:
        return ""
    return (
        f"Learned from {len(logs):,} of {whole.rows:,} decisions: those of {logs.n_users:,} users, drawn by "
        "their hash."
    )


def check_log(logs: object, learner: str) -> None:
    """Raise if the input is a table, a path or an array instead of a log."""
    if not isinstance(logs, LoggedData):
        raise DataError(
            expected="a log (shpi.LoggedData)",
            found=f"{type(logs).__module__.split('.')[0]}.{type(logs).__name__}".removeprefix("builtins."),
            where=f"{learner}.fit",
            remedy="read it first: shpi.LoggedData.read(table_or_path, columns), where columns says which "
            "column is the user, the time, the action, the reward",
        )


def rewards_of(logs: LoggedData, learner: str, observed: BoolArray | None = None) -> Float64Array:
    """The rewards [n] of a log, or an error if there are none.

    Args:
        logs: the log.
        learner: name of the learner, for the error message.
        observed: the rows whose rewards will be used [n]; the others are not checked.
    """
    if logs.rewards is None:
        raise DataError(
            expected="a log with rewards",
            found="none",
            where=learner,
            remedy="name a reward column, or derive rewards with logs.with_rewards",
        )
    bad = ~np.isfinite(logs.rewards)
    if observed is not None:
        bad &= observed
        if not observed.any():
            raise DataError(
                expected="at least one decision whose reward is known", found="none", where=learner
            )
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(
            expected="finite rewards", found=str(logs.rewards[row]), where=f"{learner}, row {row}"
        )
    return logs.rewards


def propensities_of(logs: LoggedData, learner: str) -> Float64Array:
    """The propensities mu(a_t|x_t) [n] of a log, or an error if there are none."""
    if logs.propensities is None:
        raise DataError(
            expected="a log with propensities",
            found="none",
            where=learner,
            remedy="log the probability of each action, or use logs.with_estimated_propensities()",
        )
    return logs.propensities


def greedy_among_seen(scorer: Scorer, logs: LoggedData) -> Greedy | SupportLimited:
    """argmax_a f(x, a) among the actions that the log ever took; uniform where none of them is allowed.

    The score of an action that the log never took is an extrapolation, which offline learning cannot check.
    """
    shares = np.bincount(logs.actions, minlength=logs.n_actions) / len(logs)
    if (shares > 0).all():
        return Greedy(scorer)
    tried = PolicyDensity(ConstantPolicy(shares))
    return SupportLimited(scorer, UniformPolicy(logs.n_actions), tried, 0.5 / len(logs), "mbs")
