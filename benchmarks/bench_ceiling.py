"""How much of a finite world can be learned from 200 users at all: a planner that knows how worlds are drawn.

The planner gets what no learner has: the family's own priors of rewards and transitions, the noise, the
number of states that an action can lead to, and the range of the chances to leave. From a log it takes the
posterior mean of every reward and transition, and plans in that world without having to prove anything. What
it attains is close to what any method can attain on average over such worlds. Beside it, on the same logs:
SHPI's defaults, SHPI that need not prove anything (confidence 0.5), and SPIBB. SHPI_CEILING_LOGS sets the
number of logs per family; no other benchmark has their seeds.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from benchmarks.parallel import each
from benchmarks.report import Row
from benchmarks.worlds import by_name
from benchmarks.worlds.families import FREQUENT, RARE, FamilyWorld
from benchmarks.worlds.finite import Case
from shpi.learners import SPIBB, OfflineSHPI
from shpi.protocols import Float64Array, FloatArray, Int64Array

LOGS = int(os.environ.get("SHPI_CEILING_LOGS", "60"))
FIRST_SEED, USERS = 40_000, 200
LEAVING = {"a": (0.02, 0.12), "b": (0.0, 0.0), "c": (0.02, 0.08)}  # ranges of the chances to leave
SHARE_FREQUENT = 0.2  # of the rewards in family c
GRID = 2_001  # points at which a chance is integrated


class Outcome(NamedTuple):
    """Attained shares on one log."""

    family: str
    planner: float
    shpi: float
    unproven: float  # SHPI with confidence 0.5: what the proof costs
    spibb: float


class Counts(NamedTuple):
    """What a log shows of every state and action."""

    taken: Float64Array  # [S, A] decisions
    rewards: Float64Array  # [S, A] their sum
    moves: Float64Array  # [S, A, S] to known next states
    left: Float64Array  # [S, A] users who left for good


def counts_of(case: Case, seed: int) -> Counts:
    """Count the log of a seed."""
    logs = case.log(USERS, seed)
    assert logs.rewards is not None
    shape = case.mdp.reward.shape
    state, last = _states(case, logs.contexts), _states(case, logs.final_contexts)
    taken, rewards, left = np.zeros((3, *shape))
    moves = np.zeros((*shape, shape[0]))
    np.add.at(taken, (state, logs.actions), 1.0)
    np.add.at(rewards, (state, logs.actions), logs.rewards)
    ends = logs.offsets[1:] - 1
    inner = np.ones(len(logs), dtype=bool)
    inner[ends] = False
    here = np.flatnonzero(inner)
    np.add.at(moves, (state[here], logs.actions[here], state[here + 1]), 1.0)
    shown = logs.final_observed & ~logs.terminated
    np.add.at(moves, (state[ends[shown]], logs.actions[ends[shown]], last[shown]), 1.0)
    np.add.at(left, (state[ends[logs.terminated]], logs.actions[ends[logs.terminated]]), 1.0)
    return Counts(taken, rewards, moves, left)


def planned(case: Case, family: str, seed: int) -> Float64Array:
    """The best policy [S, A] of the posterior mean of the world, under the family's priors."""
    counts, mdp = counts_of(case, seed), case.mdp
    branching = int((mdp.transition[0, 0] > 0).sum()) - (family != "b")
    transition, reward = np.zeros_like(mdp.transition), np.zeros_like(mdp.reward)
    alive = mdp.n_states - (family != "b")
    for s in range(alive):
        for a in range(mdp.n_actions):
            moves, left = counts.moves[s, a, :alive], counts.left[s, a]
            leaves = _mean_of_chance(moves.sum(), left, *LEAVING[family])
            transition[s, a, :alive] = (1 - leaves) * _mean_of_moves(moves, branching)
            if family != "b":
                transition[s, a, -1] = leaves
            reward[s, a] = _mean_reward(counts.rewards[s, a], counts.taken[s, a], family, mdp.noise)
    if family != "b":
        transition[-1, :, -1] = 1.0
    return replace(mdp, transition=transition, reward=reward).optimal()[1]


def _states(case: Case, contexts: FloatArray) -> Int64Array:
    """The states [n] of contexts."""
    distances = ((contexts[:, None, :] - case.codes[None]) ** 2).sum(axis=2)
    states: Int64Array = distances.argmin(axis=1)
    return states


def _mean_of_moves(moves: Float64Array, branching: int) -> Float64Array:
    """Posterior mean of a Dirichlet(1) over an unknown set of ``branching`` states."""
    seen = moves > 0
    unseen = max(branching - int(seen.sum()), 0) / max(int((~seen).sum()), 1)
    weights = np.where(seen, moves + 1, unseen)
    mean: Float64Array = weights / weights.sum()
    return mean


def _mean_of_chance(stayed: float, left: float, least: float, most: float) -> float:
    """Posterior mean of a chance that is uniform between two numbers."""
    if most <= least:
        return least
    grid = np.linspace(least, most, GRID)
    logs = left * np.log(grid) + stayed * np.log1p(-grid)
    weights = np.exp(logs - logs.max())
    return float(weights @ grid / weights.sum())


def _mean_reward(total: float, n: float, family: str, noise: float) -> float:
    """Posterior mean: a standard normal prior, or family c's mixture of rare and frequent rewards."""
    if family != "c":
        return float(total / (n + noise**2))
    weights, means = [], []
    for share, (least, most) in ((1 - SHARE_FREQUENT, RARE), (SHARE_FREQUENT, FREQUENT)):
        grid = np.linspace(least, most, GRID)
        likelihood = grid**total * (1 - grid) ** (n - total)
        weights.append(share * likelihood.mean())
        means.append(float(likelihood @ grid / max(likelihood.sum(), 1e-300)))
    return float(np.dot(weights, means) / max(sum(weights), 1e-300))


def attained(trial: tuple[str, int]) -> Outcome:
    """All methods on one log."""
    family, seed = trial
    world = by_name(f"finite-{family}-{USERS}")
    assert isinstance(world, FamilyWorld)
    case, logs = world.case(seed), world.make_log(seed)
    gap = case.optimum - case.value(case.mu)
    planner = (case.value(planned(case, family, seed)) - case.value(case.mu)) / gap
    learners = (
        OfflineSHPI(gamma=world.gamma, seed=seed, progress=False),
        OfflineSHPI(gamma=world.gamma, seed=seed, progress=False, confidence=0.5),
        SPIBB(gamma=world.gamma, seed=seed),
    )
    return Outcome(family, planner, *(world.headline(learner.fit(logs), seed) for learner in learners))


def run() -> list[Row]:
    trials = [(family, FIRST_SEED + i) for family in "abc" for i in range(LOGS)]
    outcomes = each(attained, trials, "ceiling")
    rows = []
    for family in ("a", "b", "c", "abc"):
        some = [outcome for outcome in outcomes if outcome.family in family]
        name = f"family {family}" if len(family) == 1 else "all three"
        for method in ("planner", "shpi", "unproven", "spibb"):
            shares = np.array([getattr(outcome, method) for outcome in some])
            error = shares.std(ddof=1) / np.sqrt(len(shares))
            rows.append(
                Row(f"{name}, {method}", float(shares.mean()), "share", f"± {error:.3f}, {len(shares)} logs")
            )
    return rows
