"""Measures how well a fitted world matches held-out users; the result is a `WorldReport`.

There are two comparisons. *Prediction*: the models' predictions at each logged decision, against the outcome.
*Simulation*: the held-out users start again from their own first contexts, are observed as long as in the
log, and get actions with the same frequencies; the result is compared with the log.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shpi.data.logged import LoggedData
from shpi.envs.fitted.fit import after_log, check_same_layout
from shpi.envs.fitted.outcomes import Returns, session_outcomes
from shpi.envs.fitted.report import ActionRow, Prediction, Simulated, WorldReport
from shpi.envs.fitted.simulator import FittedWorld
from shpi.envs.fitted.tables import auc, sigmoid
from shpi.envs.rollout import ACTION_LABEL, SESSION_END
from shpi.envs.streams import Streams
from shpi.policies.sampling import sample_actions
from shpi.protocols import Float64Array, Int64Array

GROUPS = 10  # groups of rows with similar predictions, in a calibration table
_SPREAD_ROWS = 2_000  # decisions on which the ensemble's spread is measured
_LENGTHS = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 9), (10, 10**9))  # groups of decisions per session: from, to


def check_world(world: FittedWorld, held_out: LoggedData, seed: int) -> WorldReport:
    """Implements `FittedWorld.report`."""
    check_same_layout(world.schema, world.action_space, held_out, "the held-out log")
    models, logs = world.models, held_out
    ends, returns = session_outcomes(logs, world.edges, world.observed)
    after = models.after_codes(after_log(logs, world.moves))
    predictions = _rewards(world, logs)
    if models.end is not None and len(ends.rows):
        chance = models.end_chance(after[ends.rows], logs.actions[ends.rows])
        predictions.append(_prediction("session end", ends.ended, chance, binary=True))
    if models.first is not None and len(returns.rows):
        predictions += _returns(world, logs, after, returns)
    real, again = _logged(logs, ends.rows[ends.ended > 0.5]), resimulate(world, logs, seed)
    few = np.random.default_rng(seed).permutation(len(logs))[:_SPREAD_ROWS]
    spread = world.uncertainty(logs.contexts[few], logs.actions[few]) if models.members > 1 else {}
    return WorldReport(
        world=world.name,
        users=logs.n_users,
        sessions=logs.n_sessions,
        decisions=len(logs),
        predictions=tuple(predictions),
        actions=_actions(world, logs),
        lengths=_lengths(real.lengths, again.lengths),
        simulated=_compare(real, again),
        spread={name: float(values.mean()) for name, values in spread.items()},
        notes=world.notes,
    )


# ---------------------------------------------------------------------- prediction


def _prediction(
    name: str,
    observed: Float64Array,
    predicted: Float64Array,
    *,
    binary: bool,
    without: Float64Array | None = None,
    part: str = "",
) -> Prediction:
    groups = np.array_split(np.argsort(predicted, kind="stable"), min(GROUPS, len(predicted)))
    skill = auc if binary else _explained
    return Prediction(
        name=name,
        rows=len(observed),
        observed=float(observed.mean()),
        predicted=float(predicted.mean()),
        measure="AUC" if binary else "R2",
        skill=skill(observed, predicted),
        without=None if without is None else skill(observed, without),
        part=part,
        group_rows=tuple(len(group) for group in groups),
        group_predicted=tuple(float(predicted[group].mean()) for group in groups),
        group_observed=tuple(float(observed[group].mean()) for group in groups),
    )


def _explained(observed: Float64Array, predicted: Float64Array) -> float:
    """R²: the share of the variance that the prediction explains."""
    total = float(np.square(observed - observed.mean()).mean())
    return 1.0 - float(np.square(observed - predicted).mean()) / total if total > 0 else 0.0


def _rewards(world: FittedWorld, logs: LoggedData) -> list[Prediction]:
    """Predictions of the reward; also by the model with the logged action, if the world does not use it."""
    assert logs.rewards is not None
    models, codes = world.models, world.models.bins.code(logs.contexts)
    binary, state = models.reward.binary, models.reward_state.mean(models.reward_state.eta(codes))
    mean = models.reward_mean(logs.contexts, logs.actions)
    rows = [_prediction("reward", logs.rewards, mean, binary=binary, without=state, part="action")]
    if models.reward_logged is not None:
        mean = models.reward_logged.mean(models.reward_logged.eta(codes, logs.actions))
        name = "reward, association"
        rows.append(_prediction(name, logs.rewards, mean, binary=binary, without=state, part="action"))
    return rows


def _returns(world: FittedWorld, logs: LoggedData, after: Any, returns: Returns) -> list[Prediction]:
    """Predictions of a return in the first bin, and within all bins if that is known."""
    models, rows = world.models, []
    hazards = models.hazards(after[returns.rows], logs.actions[returns.rows])  # [m, B]
    for bins in sorted({1, len(returns.edges)}):
        known, back = returns.within(bins)
        if not len(known):
            continue
        chance = 1.0 - np.prod(1.0 - hazards[known, :bins], axis=1)
        state = None
        if bins == 1 and models.first_state is not None:
            began = models.bins.code(logs.contexts[returns.starts[known]])
            state = sigmoid(models.first_state.eta(began))
        name = f"return within {_edge(returns.edges[bins - 1], logs)}"
        rows.append(
            _prediction(name, back, chance, binary=True, without=state, part="feedback of the session")
        )
    return rows


def _edge(edge: float, logs: LoggedData) -> str:
    if not np.isfinite(edge):
        return "any time"
    return f"{edge / 86_400e6:g} d" if logs.time_unit == "us" else f"{edge:g}"


def _actions(world: FittedWorld, logs: LoggedData) -> tuple[ActionRow, ...]:
    assert logs.rewards is not None
    predicted = world.models.reward_mean(logs.contexts, logs.actions)
    rows = []
    for a in np.argsort(-np.bincount(logs.actions, minlength=logs.n_actions), kind="stable"):
        here = np.flatnonzero(logs.actions == a)
        if len(here):
            rows.append(
                ActionRow(
                    action=str(logs.action_space.ids[a]),
                    rows=len(here),
                    observed=float(logs.rewards[here].mean()),
                    predicted=float(predicted[here].mean()),
                    error=float(logs.rewards[here].std() / np.sqrt(len(here))),
                )
            )
    return tuple(rows)


# ---------------------------------------------------------------------- simulation


class _Watched(NamedTuple):
    """Users' activity: decisions [n], sessions [n] and rewards [n] of each; lengths of ended sessions."""

    decisions: Float64Array
    sessions: Float64Array
    rewards: Float64Array
    lengths: Int64Array


def _logged(logs: LoggedData, ends: Int64Array) -> _Watched:
    assert logs.rewards is not None
    session = logs.session_of_row[ends]
    return _Watched(
        decisions=np.diff(logs.offsets).astype(np.float64),
        sessions=np.bincount(logs.trajectory_of_session, minlength=logs.n_trajectories).astype(np.float64),
        rewards=np.add.reduceat(logs.rewards, logs.offsets[:-1]),
        lengths=np.diff(logs.session_offsets)[session],
    )


def resimulate(world: FittedWorld, logs: LoggedData, seed: int) -> _Watched:
    """Simulate the log's users again, from their own first contexts, observed as long as in the log."""
    n, times = logs.n_trajectories, logs.times.astype(np.float64)
    until, limit = np.full(n, np.inf), np.full(n, world.horizon)
    if world.observed == "log":
        until = times.max() - times[logs.offsets[:-1]]
    else:
        limit = np.where(logs.terminated, world.horizon, np.diff(logs.offsets))
    streams = Streams(seed, np.arange(n))
    shares = np.bincount(logs.actions, minlength=logs.n_actions) / len(logs)
    table = np.tile(shares, (n, 1))
    simulator = world.with_reward("proxy")
    simulator.start(logs.contexts[logs.offsets[:-1]], until, streams)
    decisions, sessions, rewards, inside = np.zeros(n), np.ones(n), np.zeros(n), np.zeros(n, dtype=np.int64)
    running, lengths = np.ones(n, dtype=bool), []
    for t in range(min(world.horizon, int(limit.max()))):
        step = simulator.step(sample_actions(table, streams.uniform(ACTION_LABEL, t)))
        decisions += running
        rewards += np.where(running, step.rewards, 0.0)
        inside += running
        end = step.info[SESSION_END] & running
        lengths.append(inside[end])
        inside[end] = 0
        running &= ~step.ended & (t + 1 < limit)
        sessions += end & running
        if not running.any():
            break
    return _Watched(decisions, sessions, rewards, np.concatenate(lengths))


def _lengths(real: Int64Array, again: Int64Array) -> tuple[Simulated, ...]:
    if not len(real) or not len(again):
        return ()
    rows = []
    for low, high in _LENGTHS:
        name = str(low) if low == high else f"{low}–{high}" if high < 10**9 else f"{low} or more"
        shares = [float(((lengths >= low) & (lengths <= high)).mean()) for lengths in (real, again)]
        rows.append(Simulated(name=name, held_out=shares[0], simulated=shares[1]))
    return tuple(rows)


def _compare(real: _Watched, again: _Watched) -> tuple[Simulated, ...]:
    def row(name: str, pair: list[Any]) -> Simulated:
        return Simulated(name=name, held_out=float(pair[0]), simulated=float(pair[1]))

    both = (real, again)
    return (
        row("decisions per user, mean", [w.decisions.mean() for w in both]),
        row("decisions per user, deviation", [w.decisions.std() for w in both]),
        row("sessions per user, mean", [w.sessions.mean() for w in both]),
        row("sessions per user, deviation", [w.sessions.std() for w in both]),
        row("decisions per session", [w.decisions.sum() / w.sessions.sum() for w in both]),
        row("reward per decision", [w.rewards.sum() / w.decisions.sum() for w in both]),
    )
