"""`LoggedData` to d3rlpy's MDPDataset.

Endings: a trajectory that is terminated ends in a *terminal*, any other in a *timeout*. A session end is
neither, so sessions of one user stay joined. d3rlpy bootstraps across a session end like any other step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shpi.data._log import ragged
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError


def to_d3rlpy(logs: LoggedData) -> Any:
    """An ``MDPDataset`` with one episode per trajectory and discrete actions.

    d3rlpy keeps T observations for T actions and, at a timeout, has no next observation for the last
    decision: it makes T - 1 transitions of it. Where the last context was observed, a closing row (that
    context, the last action again, reward 0) is added, so that no decision is lost. The closing row is
    never a transition of its own. Where the last context was not observed, the last transition is lost.

    Propensities, sessions, times and candidates are dropped: d3rlpy has no place for them.
    """
    try:
        from d3rlpy.constants import ActionSpace
        from d3rlpy.dataset import MDPDataset
    except ImportError:
        raise ConfigError(
            expected="the package 'd3rlpy'",
            found="that it is not installed",
            remedy="pip install d3rlpy, in an environment of its own: it pins the version of gymnasium",
        ) from None
    arrays = mdp_arrays(logs)
    return MDPDataset(**arrays, action_space=ActionSpace.DISCRETE, action_size=logs.n_actions)


def mdp_arrays(logs: LoggedData) -> dict[str, Any]:
    """The arrays of an MDPDataset: observations, actions, rewards, terminals, timeouts."""
    if logs.rewards is None:
        raise DataError(
            expected="a log with rewards", found="none", remedy="choose one with logs.with_rewards(...)"
        )
    closing = logs.final_observed & ~logs.terminated  # [N]
    lengths = ragged.lengths(logs.offsets)
    transitions = int((lengths - (~closing & ~logs.terminated)).sum())
    if transitions == 0:
        raise DataError(
            expected="at least one decision whose next context is known",
            found="trajectories of one decision, none terminated and no last context observed",
            remedy="a bandit log is not a Markov decision process; use to_bandit_feedback",
        )
    offsets = ragged.offsets_from_lengths(lengths + closing)
    total = int(offsets[-1])
    last = offsets[1:] - 1  # [N] the last row of each episode
    ours = np.ones(total, dtype=bool)
    ours[last[closing]] = False
    observations = np.empty((total, logs.schema.width), dtype=np.float32)
    actions = np.empty(total, dtype=np.int32)
    rewards, terminals = np.zeros(total, dtype=np.float32), np.zeros(total, dtype=np.float32)
    observations[ours], actions[ours], rewards[ours] = logs.contexts, logs.actions, logs.rewards
    observations[last[closing]] = logs.final_contexts[closing]
    actions[last[closing]] = logs.actions[logs.offsets[1:] - 1][closing]
    timeouts = np.zeros(total, dtype=np.float32)
    terminals[last[logs.terminated]] = 1.0
    timeouts[last[~logs.terminated]] = 1.0
    return {
        "observations": observations,
        "actions": actions,
        "rewards": rewards,
        "terminals": terminals,
        "timeouts": timeouts,
    }
