r"""Is there anything in the log that could decide? Outcomes seen with the actions that the policy favours.

Where rewards are mostly one value, such as 0, the other ones are events. A policy that leans on an action
which few users tried, none of whom had an event after it, looks bad with a small error: what would decide is
not in the log. Then neither "evidence against" nor a proof is possible, whatever the bounds say.

An action counts if a tenth of what the policy does more often is this action. A user counts for it if some
reward at or after such a decision is an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from shpi.ope.problem import Chunk, Problem, once
from shpi.protocols import BoolArray, Float64Array

LEAST_EVENTS = 5  # users; with fewer, a Poisson count is known to no better than a factor of three
MOSTLY = 0.5  # a value that at least so many rewards have is the ordinary outcome
FAVOURED = 0.1  # of all that the policy does more often


@dataclass(frozen=True, kw_only=True)
class Events:
    """The favoured action with the fewest users who had an event after it."""

    action: str
    gained: float  # how much more often the policy takes it, as a share of the decisions
    users: int
    ordinary: float | None  # the value that is no event; None: all rewards are events

    @property
    def few(self) -> bool:
        """Whether nothing can be decided."""
        return self.users < LEAST_EVENTS

    def sentence(self) -> str:
        """In words."""
        users = "no user" if self.users == 0 else f"{self.users} user" + "s" * (self.users > 1)
        what = "was observed" if self.ordinary is None else f"had a reward other than {self.ordinary:g}"
        return (
            f"The policy takes action {self.action} {100 * self.gained:.2g} % more often, and {users} {what} "
            f"after it: the log has too few such users to decide. At least {LEAST_EVENTS} are needed."
        )


@once
def events(problem: Problem) -> Events | None:
    """The favoured action of which the least is known; None if none is favoured, or rewards never differ."""
    if problem.reward_range[0] == problem.reward_range[1]:
        return None
    ordinary = _ordinary(problem)
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


def _ordinary(problem: Problem) -> float | None:
    """The value of most rewards, looked for in a sample of the users."""
    chunk = problem.sample()
    values, counts = np.unique(chunk.rewards[chunk.observed], return_counts=True)
    most = int(counts.argmax())
    return float(values[most]) if counts[most] >= MOSTLY * counts.sum() else None


def _gained_and_users(chunk: Chunk, shares: Float64Array, ordinary: float | None) -> Float64Array:
    return np.stack([_gained(chunk, shares), _users(chunk, ordinary)])


def _gained(chunk: Chunk, shares: Float64Array) -> Float64Array:
    """The sum over decisions of what pi(a|x) has above mu(a|x), [A]; ``shares`` [A] where mu is unknown."""
    logs, total = chunk.logs, np.zeros(chunk.logs.n_actions)
    for rows, probs in chunk.probs():
        mu = shares if logs.behaviour is None else logs.behaviour[rows]
        total += np.maximum(probs - mu, 0.0).sum(axis=0)
    return total


def _users(chunk: Chunk, ordinary: float | None) -> Float64Array:
    """Users with an event at or after a decision for each action, [A]."""
    logs = chunk.logs
    event: BoolArray = chunk.observed.copy()
    if ordinary is not None:
        event &= chunk.rewards != ordinary
    # The last event of a trajectory is at or after a decision if its row is not before it.
    rows = np.where(event, np.arange(len(logs)), -1)
    last = np.maximum.reduceat(rows, logs.offsets[:-1])
    before = np.arange(len(logs)) <= last[logs.trajectory_of_row]
    pairs = np.unique(chunk.users[before] * np.int64(logs.n_actions) + logs.actions[before])
    return np.bincount(pairs % logs.n_actions, minlength=logs.n_actions).astype(np.float64)
