"""Decisions of a log with a known future: the one place where the three endings are told apart.

A transition (x_t, a_t, r_t, x_{t+1}) is *usable* when what follows the decision is known:
    inside a trajectory       x_{t+1} is the next row (a session end is no exception)
    terminated                there is no next context, and its value is 0
    truncated, final seen     x_{t+1} is the final context
    truncated, final unseen   not usable: the log stops before the consequence is seen
and when its reward was seen (``LoggedData.reward_observed``).

Leaving is always seen, going on only if the log does not stop first. In a log without last contexts the rows
that are not usable are all rows of users who went on, so that among the others leaving looks too frequent.
`shpi.data._log.cut` repairs this: of the users who left, as many are treated as if the log had stopped.
"""

from __future__ import annotations

import numpy as np

from shpi.data._log.cut import taken_as_cut
from shpi.data.logged import LoggedData
from shpi.errors import DataError
from shpi.features import FeatureMap
from shpi.protocols import BoolArray, Float32Array, Float64Array, Int64Array

_BLOCK = 50_000  # contexts that are transformed together


def next_known(logs: LoggedData) -> BoolArray:
    """For each decision [n], whether what follows it is known."""
    known = np.ones(len(logs), dtype=bool)
    known[logs.offsets[1:] - 1] = logs.final_observed | logs.terminated
    return known


def usable_transitions(logs: LoggedData) -> BoolArray:
    """For each decision [n], whether it can be learned from: its reward and what follows it are known."""
    known = next_known(logs)
    known[logs.offsets[1:][taken_as_cut(logs)] - 1] = False
    return known if logs.reward_observed is None else known & logs.reward_observed


def goes_on(logs: LoggedData) -> BoolArray:
    """For each decision [n], False where the user is gone for good after it."""
    alive = np.ones(len(logs), dtype=bool)
    alive[logs.offsets[1:] - 1] = ~logs.terminated
    return alive


def rewards_of(logs: LoggedData) -> Float64Array:
    """The rewards [n], or a clear error when the log has none."""
    if logs.rewards is None:
        raise DataError(
            expected="a log with rewards",
            found="none",
            remedy="name the reward column, or recover rewards from a value that you have: "
            "shpi.values.backshift",
        )
    return logs.rewards


def next_states(logs: LoggedData) -> Int64Array:
    """For each decision [n], the row of what follows it among `states`."""
    following = np.arange(1, len(logs) + 1)
    following[logs.offsets[1:] - 1] = len(logs) + np.arange(logs.n_trajectories)
    return following


def states(logs: LoggedData, inputs: FeatureMap) -> Float32Array:
    """The network inputs of every decision, then of the end of every trajectory, [n + N, p].

    Filled in blocks, so that no second copy in double precision is made.
    """
    n = len(logs)
    rows = np.empty((n + logs.n_trajectories, inputs.width), dtype=np.float32)
    for target, contexts in ((rows[:n], logs.contexts), (rows[n:], logs.final_contexts)):
        for start in range(0, len(target), _BLOCK):
            target[start : start + _BLOCK] = inputs.transform(contexts[start : start + _BLOCK])
    return rows
