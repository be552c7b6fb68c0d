r"""How trajectories end: does the log say so, and is censoring independent of actions and rewards?

A user who left and a user whose log was cut look alike. If the log does not say which (`LoggedData.endings`)
and some trajectories stop early, the policy's effect on trajectory length is either all of the answer or none
of it, and no estimate can tell. The gate then never ships.

Where trajectories count as cut by the log ("censored"), the time of the cut must be independent of the
actions and of the rewards so far. Among trajectories with a decision at step t and no termination there, with
c_t = 1 if the trajectory is cut and g_t the share that is not,

    S = sum_t (c_t - (1 - g_t)) z_t,    clustered by user: S / sqrt(sum_u S_u^2) is about normal

for z_t = pi/mu - 1 of this decision and of the two before it, 1[a_t = a] - mu(a|x_t) for some actions a, the
first reward, and the mean reward so far, each minus its mean at step t. All tests share one level.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from shpi._core.distributions import normal_quantile
from shpi.ope.inference.weighting import add_up
from shpi.ope.problem import Chunk, Problem
from shpi.ope.results import Diagnostic
from shpi.protocols import BoolArray, Float64Array

LEVEL = 0.001  # significance level over all columns: probability of a false alarm
FEW = 0.01  # share of the trajectories: if at most so many stop early, how they end hardly matters
LAGS = 3  # decisions that may have made a user leave: the last one and those before it
MOST_ACTIONS = 10  # number of actions tested: the first ones of the action space
LEAST_CUT = 20  # censored trajectories that the normal approximation needs


def about_endings(problem: Problem) -> list[Diagnostic]:
    """Whether the log says how trajectories end, and whether censoring is independent of the user."""
    early = problem.trajectories - int(problem.alive[-1])
    if not problem.endings_told and early > FEW * problem.trajectories:
        return [
            Diagnostic(
                name="endings",
                severity="fatal",
                sentence=f"The log does not say how users end: {early:,} of {problem.trajectories:,} "
                f"trajectories stop before {problem.horizon:,} decisions, because the user left or because "
                "the log ended (censored). Say which: a column 'terminated', churn_after (such as '30d'), a "
                "metric with a window, or truncated='complete' if no more would follow.",
                figure=float(early),
                threshold=FEW * problem.trajectories,
            )
        ]
    if problem.censored < LEAST_CUT or problem.horizon < 2:
        return []
    return [_cut_for_no_reason(problem)]


# ---------------------------------------------------------------------- does anything predict a cut?


def _cut_for_no_reason(problem: Problem) -> Diagnostic:
    names = _names(problem)
    means = _means_by_step(problem, len(names))  # [J, H]
    scores = problem.by_user(partial(_scores, problem=problem, means=means))  # [J, U]
    spread = np.sqrt(np.sum(scores**2, axis=1))
    z = np.where(spread > 0, scores.sum(axis=1) / np.where(spread > 0, spread, 1.0), 0.0)
    limit = float(normal_quantile(1 - LEVEL / (2 * len(z))))
    worst = int(np.abs(z).argmax())
    bad = abs(float(z[worst])) > limit
    if bad:
        more = "more" if z[worst] > 0 else "less"
        sentence = (
            f"{problem.censored:,} trajectories count as censored by the log, but where {names[worst]} is "
            f"higher they stop {more} often (z = {z[worst]:.1f}): some of these users left, or had finished. "
            "Mark who left ('terminated', churn_after), or say truncated='complete'."
        )
    else:
        sentence = (
            f"{problem.censored:,} trajectories are censored by the log; no action or reward predicts when."
        )
    return Diagnostic(
        name="endings",
        severity="fatal" if bad else "fine",
        sentence=sentence,
        figure=abs(float(z[worst])),
        threshold=limit,
    )


def _names(problem: Problem) -> list[str]:
    """The names of the columns, in the order of `_columns`."""
    chunk = problem.sample()
    names = ["the first reward", "the mean reward so far"]
    if chunk.logs.propensities is not None:
        names += [f"the policy's weight {lag} decisions before" for lag in range(LAGS)]
    if chunk.logs.behaviour is not None:
        labels = chunk.logs.action_space.ids
        names += [f"the share of action {labels[a]}" for a in _actions(chunk)]
    return names


def _actions(chunk: Chunk) -> list[int]:
    """The first actions of the action space, so that every chunk tests the same ones."""
    return list(range(min(chunk.logs.n_actions, MOST_ACTIONS)))


def _columns(chunk: Chunk) -> Iterator[Float64Array]:
    """Iterate over the columns z [n]."""
    logs, steps = chunk.logs, chunk.steps
    rewards = np.where(chunk.observed, chunk.rewards, 0.0)
    first = logs.offsets[:-1][logs.trajectory_of_row]
    yield rewards[first]
    sums = np.cumsum(rewards)
    yield (sums - sums[first] + rewards[first]) / (steps + 1)
    if logs.propensities is not None:
        ratio = chunk.taken / logs.propensities - 1
        for lag in range(LAGS):
            yield np.where(steps >= lag, np.roll(ratio, lag), 0.0)
    if logs.behaviour is not None:
        for a in _actions(chunk):
            yield (logs.actions == a) - logs.behaviour[:, a]


def _at_risk(problem: Problem, chunk: Chunk) -> BoolArray:
    """Decisions after which a trajectory may be cut [n]: before the last step, and no termination."""
    return chunk.goes_on & (chunk.steps < problem.horizon - 1)


def _means_by_step(problem: Problem, columns: int) -> Float64Array:
    """The mean of every column over the decisions at risk, by step [J, H]."""
    total = problem.total(partial(_sums_by_step, problem=problem))
    means: Float64Array = total[1 : columns + 1] / np.maximum(total[0], 1.0)
    return means


def _sums_by_step(chunk: Chunk, problem: Problem) -> Float64Array:
    """The number of decisions at risk, and the sum of every column over them, by step [1 + J, H]."""
    risk = _at_risk(problem, chunk)
    where = chunk.steps[risk]
    counted = [np.ones(len(where)), *(column[risk] for column in _columns(chunk))]
    return np.stack([add_up(where, column, problem.horizon) for column in counted])


def _scores(chunk: Chunk, problem: Problem, means: Float64Array) -> Float64Array:
    """The sum over each user's decisions of (c - hazard) z, [J, users of the chunk]."""
    logs, steps = chunk.logs, chunk.steps
    risk = _at_risk(problem, chunk)
    stops = np.zeros(len(logs))
    stops[logs.offsets[1:] - 1] = 1.0
    hazard = 1 - np.append(problem.kept[1:] / problem.kept[:-1], 1.0)
    excess = np.where(risk, stops - hazard[steps], 0.0)
    scores = [
        add_up(chunk.users, excess * (column - mean[steps]), logs.n_users)
        for column, mean in zip(_columns(chunk), means, strict=True)
    ]
    return np.stack(scores)
