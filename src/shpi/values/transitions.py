"""Transitions of a log with a known future; the only place that tells the three endings apart.

A transition (x_t, a_t, r_t, x_{t+1}) is *usable* when what follows the decision is known:
    inside a trajectory       x_{t+1} is the next row (a session end is no exception)
    terminated                there is no next context, and its value is 0
    truncated, final seen     x_{t+1} is the final context
    truncated, final unseen   not usable: the log stops before the consequence is seen
and when its reward was seen (``LoggedData.reward_observed``).

A log always shows users leaving, but users continuing only until it stops. In a log without final contexts
the unusable rows all belong to users who continued, so that leaving looks too frequent among the others.
`shpi.data._log.cut` corrects this: the same share of the users who left is treated as if the log had stopped.
"""

from __future__ import annotations

import numpy as np

from shpi.data._log.cut import taken_as_cut
from shpi.data.logged import LoggedData
from shpi.errors import DataError
from shpi.features import FeatureMap
from shpi.protocols import BoolArray, Float32Array, Float64Array, Int64Array

_BLOCK = 50_000  # contexts transformed at a time


def next_known(logs: LoggedData) -> BoolArray:
    """For each decision [n], whether its successor is known."""
    known = np.ones(len(logs), dtype=bool)
    known[logs.offsets[1:] - 1] = logs.final_observed | logs.terminated
    return known


def usable_transitions(logs: LoggedData) -> BoolArray:
    """For each decision [n], whether it can be learned from: its reward and its successor are known."""
    known = next_known(logs)
    known[logs.offsets[1:][taken_as_cut(logs)] - 1] = False
    return known if logs.reward_observed is None else known & logs.reward_observed


def goes_on(logs: LoggedData) -> BoolArray:
    """For each decision [n], False if the user left for good after it."""
    alive = np.ones(len(logs), dtype=bool)
    alive[logs.offsets[1:] - 1] = ~logs.terminated
    return alive


def rewards_of(logs: LoggedData) -> Float64Array:
    """The rewards [n]; a log without rewards is an error."""
    if logs.rewards is None:
        raise DataError(
            expected="a log with rewards",
            found="none",
            remedy="name the reward column, or recover rewards from a value that you have: "
            "shpi.values.backshift",
        )
    return logs.rewards


def next_states(logs: LoggedData) -> Int64Array:
    """For each decision [n], the row of its successor among `states`."""
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
