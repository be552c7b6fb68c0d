r"""Check that the log has enough events after the actions that the policy favours.

If most rewards have one value, such as 0, the other rewards are events. A policy that favours an action which
few users tried, none of whom had an event after it, looks bad with a small error: the decisive outcomes are
missing from the log. Then neither evidence against the policy nor a proof is possible, whatever the bounds.

An action is favoured if it makes up at least a tenth of the probability that the policy adds over mu. A user
counts for it if some reward at or after such a decision is an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from shpi.ope.problem import Chunk, Problem, once
from shpi.protocols import BoolArray, Float64Array

LEAST_EVENTS = 5  # users with an event; a smaller Poisson count is known only to a factor of three or worse
MOSTLY = 0.5  # the ordinary outcome is a value that at least this share of the rewards has
FAVOURED = 0.1  # share of the probability that the policy adds over mu, from which an action is favoured


@dataclass(frozen=True, kw_only=True)
class Events:
    """The favoured action with the fewest users who had an event after it."""

    action: str
    gained: float  # how much more often the policy takes it than mu, as a share of the decisions
    users: int  # number of users with an event after it
    ordinary: float | None  # the reward that is not an event; None: all rewards are events

    @property
    def few(self) -> bool:
        """Whether there are too few events to decide."""
        return self.users < LEAST_EVENTS

    def sentence(self) -> str:
        """The finding in words."""
        users = "no user" if self.users == 0 else f"{self.users} user" + "s" * (self.users > 1)
        what = "was observed" if self.ordinary is None else f"had a reward other than {self.ordinary:g}"
        return (
            f"The policy takes action {self.action} {100 * self.gained:.2g} % more often, and {users} {what} "
            f"after it: the log has too few such users to decide. At least {LEAST_EVENTS} are needed."
        )


@once
def events(problem: Problem) -> Events | None:
    """The favoured action with the fewest events; None if no action is favoured or all rewards are equal."""
    if problem.reward_range[0] == problem.reward_range[1]:
        return None
    chunk = problem.sample()
    values, often = np.unique(chunk.rewards[chunk.observed], return_counts=True)
    most = int(often.argmax())
    ordinary = float(values[most]) if often[most] >= MOSTLY * often.sum() else None
    counts = problem.times_taken
    shares = counts / counts.sum()
    gained, users = problem.total(partial(_gained_and_users, shares=shares, ordinary=ordinary))  # [A] each
    gained = gained / problem.decisions
    if not gained.sum() > 0:
        return None
    favoured = np.flatnonzero(gained >= FAVOURED * gained.sum())
    if not len(favoured):
        return None
    least = int(favoured[np.argmin(users[favoured])])
    labels = problem.head.action_space.ids
    return Events(
        action=str(labels[least]), gained=float(gained[least]), users=int(users[least]), ordinary=ordinary
    )


def _gained_and_users(chunk: Chunk, shares: Float64Array, ordinary: float | None) -> Float64Array:
    """By action, the sum over decisions of max(pi(a|x) - mu(a|x), 0), and the users with an event [2, A].

    ``shares`` [A] replaces an unknown mu. A user's event is at or after a decision for the action.
    """
    logs, gained = chunk.logs, np.zeros(chunk.logs.n_actions)
    for rows, probs in chunk.probs():
        mu = shares if logs.behaviour is None else logs.behaviour[rows]
        gained += np.maximum(probs - mu, 0.0).sum(axis=0)
    event: BoolArray = chunk.observed.copy()
    if ordinary is not None:
        event &= chunk.rewards != ordinary
    # A decision has an event at or after it if the last event of its trajectory is not before it.
    events_at = np.where(event, np.arange(len(logs)), -1)
    last = np.maximum.reduceat(events_at, logs.offsets[:-1])
    before = np.arange(len(logs)) <= last[logs.trajectory_of_row]
    pairs = np.unique(chunk.users[before] * np.int64(logs.n_actions) + logs.actions[before])
    return np.stack([gained, np.bincount(pairs % logs.n_actions, minlength=logs.n_actions)])
