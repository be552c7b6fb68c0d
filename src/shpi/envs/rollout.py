"""Runs a policy in a simulator: a log, or just the returns. Neither depends on the split into batches.

Actions are drawn by inverse CDF, a_t = F^{-1}(u_t | x_t), where u_t is a number of the user's own stream.
The policy gets the contexts in float32, as in the log, so its probabilities at the logged contexts are the
logged propensities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shpi._core.progress import progress_bar
from shpi.data._log import ragged
from shpi.data.actions import ActionSpace
from shpi.data.logged import LoggedData
from shpi.data.schema import ContextSchema
from shpi.envs.base import check_reset, whole_number
from shpi.envs.streams import Streams
from shpi.errors import ConfigError
from shpi.policies.sampling import sample_actions
from shpi.protocols import (
    BoolArray,
    Float32Array,
    Float64Array,
    FloatArray,
    Int64Array,
    Policy,
    Simulator,
    Step,
)

ACTION_LABEL = 0xAC7104  # the label of the draws that choose actions; simulators use small labels
SESSION_END = "session_end"


class Returns(NamedTuple):
    """The returns of a policy, user by user."""

    returns: Float64Array  # [n] the undiscounted sum of rewards
    scores: Float64Array | None  # [n] the simulator's own score, if it has one

    @property
    def mean(self) -> float:
        """The mean of the simulator's own score, or of the returns if there is none."""
        return float((self.returns if self.scores is None else self.scores).mean())


def rollout(
    simulator: Simulator,
    policy: Policy,
    n: int,
    seed: int,
    *,
    first: int = 0,
    horizon: int | None = None,
    progress: bool | None = False,
    batch: int | None = None,
    keep_behaviour: bool = False,
) -> LoggedData:
    """The log of users first .. first+n-1 under ``policy``, with its propensities.

    Args:
        simulator: the simulator, which is reset.
        policy: the policy that acts; its probabilities become the log's propensities.
        n: the number of users.
        seed: random seed of the world and of the policy's draws.
        first: the number of the first user; user i is the same in every batch.
        horizon: the number of decisions after which a user is truncated; the simulator's if None.
        progress: show a progress bar; None shows it in a terminal only.
        batch: largest number of users that advance together; it bounds the simulator's memory.
        keep_behaviour: whether to keep the whole distribution mu(.|x), [n, A].
    """
    check_reset(n, seed, first)
    steps = _horizon(simulator, policy, horizon)
    parts = _parts(n, first, batch)
    with progress_bar(f"simulate {simulator.name}", steps * len(parts), progress) as advance:
        logs = [
            _log_part(simulator, policy, size, seed, start, steps, keep_behaviour, advance)
            for start, size in parts
        ]
    return _assemble(simulator, logs, first)


def mean_return(
    simulator: Simulator,
    policy: Policy,
    n: int,
    seed: int,
    *,
    first: int = 0,
    horizon: int | None = None,
    batch: int | None = None,
) -> Returns:
    """The returns of users first .. first+n-1 under ``policy``; the users of `rollout`, without a log."""
    check_reset(n, seed, first)
    steps = _horizon(simulator, policy, horizon)
    score: Callable[[], Float64Array] | None = getattr(simulator, "score", None)
    returns, scores = np.zeros(n), np.zeros(n)
    for start, size in _parts(n, first, batch):
        block = slice(start - first, start - first + size)
        for _, rows, _, step in _advance(simulator, policy, size, seed, start, steps):
            returns[block][rows] += step.rewards[rows]
        if score is not None:
            scores[block] = score()
    return Returns(returns, None if score is None else scores)


# ---------------------------------------------------------------------- one batch of users


class _Decision(NamedTuple):
    """The decisions of one time step, of the users that had not ended before it."""

    contexts: Float32Array  # [m, d]
    candidates: BoolArray | None  # [m, A]
    probs: Float64Array  # [m, A]
    actions: Int64Array  # [m]


def _advance(
    simulator: Simulator, policy: Policy, n: int, seed: int, first: int, steps: int
) -> Iterator[tuple[int, Any, _Decision, Step]]:
    """Time, the rows that decide (a slice or positions), their decisions, and the resulting `Step`."""
    contexts: FloatArray = simulator.reset(n, seed, first=first)
    streams = Streams(seed, np.arange(first, first + n, dtype=np.int64))
    rows: Any = slice(None)
    for t in range(steps):
        decision = _decide(policy, contexts, simulator.candidates(), rows, streams, t)
        actions = np.zeros(n, dtype=np.int64)
        actions[rows] = decision.actions
        step = simulator.step(actions)
        yield t, rows, decision, step
        if step.ended.all():
            return
        contexts = step.contexts
        if step.ended.any():
            rows = np.flatnonzero(~step.ended)


def _decide(
    policy: Policy, contexts: FloatArray, candidates: BoolArray | None, rows: Any, streams: Streams, t: int
) -> _Decision:
    shown = contexts[rows].astype(np.float32)
    allowed = None if candidates is None else candidates[rows]
    probs = policy.action_probs(shown, allowed)
    if probs.shape != (len(shown), policy.n_actions):
        raise ConfigError(
            expected=f"action probabilities of shape {(len(shown), policy.n_actions)}",
            found=f"shape {probs.shape}",
            where=f"{type(policy).__name__}.action_probs",
        )
    chance = streams if isinstance(rows, slice) else streams.take(rows)
    return _Decision(shown, allowed, probs, sample_actions(probs, chance.uniform(ACTION_LABEL, t)))


@dataclass
class _Part:
    """The flat arrays of one batch of users, before they become a log."""

    lengths: Int64Array  # [n]
    terminated: BoolArray  # [n]
    final_contexts: Float32Array  # [n, d]
    final_candidates: BoolArray | None  # [n, A]
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)  # by name, each [rows, ...]


def _log_part(
    simulator: Simulator,
    policy: Policy,
    n: int,
    seed: int,
    first: int,
    steps: int,
    keep_behaviour: bool,
    advance: Callable[[float], None],
) -> _Part:
    lengths, terminated = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
    final = np.empty((n, len(simulator.context_names)), dtype=np.float32)
    final_allowed: BoolArray | None = None
    rows_of_step: list[Any] = []
    columns_of_step: list[dict[str, NDArray[Any]]] = []
    for t, rows, decision, step in _advance(simulator, policy, n, seed, first, steps):
        rows_of_step.append(rows)
        columns_of_step.append(_columns(decision, step, rows, n, keep_behaviour))
        lengths[rows] += 1
        # The final context of a user is the one after its end, or after the last step.
        last = ~terminated if t == steps - 1 else step.ended & ~terminated
        if last.any():
            final[last] = step.contexts[last]
            allowed = simulator.candidates()
            if allowed is not None:
                final_allowed = np.ones_like(allowed) if final_allowed is None else final_allowed
                final_allowed[last] = allowed[last]
        terminated |= step.ended
        advance(1)
    users_log = _Part(lengths, terminated, final, final_allowed)
    users_log.columns.update(_in_user_order(rows_of_step, columns_of_step, lengths))
    return users_log


def _columns(
    decision: _Decision, step: Step, rows: Any, n: int, keep_behaviour: bool
) -> dict[str, NDArray[Any]]:
    """The columns of one time step, by name; metrics of the simulator are under ``info:``."""
    place = np.arange(len(decision.actions))
    columns: dict[str, NDArray[Any]] = {
        "contexts": decision.contexts,
        "actions": decision.actions.astype(np.int32),
        "rewards": step.rewards[rows],
        "propensities": decision.probs[place, decision.actions],
    }
    if decision.candidates is not None:
        columns["candidates"] = decision.candidates
    if keep_behaviour:
        columns["behaviour"] = decision.probs
    for name, values in step.info.items():
        if isinstance(values, np.ndarray) and values.shape == (n,) and values.dtype.kind in "biuf":
            columns[f"info:{name}"] = values[rows]
    return columns


def _in_user_order(
    rows_of_step: list[Any], columns_of_step: list[dict[str, NDArray[Any]]], lengths: Int64Array
) -> dict[str, NDArray[Any]]:
    """Turn lists over time into flat arrays in (user, time) order: user i at time t is row offsets[i] + t."""
    offsets = ragged.offsets_from_lengths(lengths)
    flat = {
        name: np.empty((int(offsets[-1]), *values.shape[1:]), dtype=values.dtype)
        for name, values in columns_of_step[0].items()
    }
    for t, rows in enumerate(rows_of_step):
        place = offsets[:-1][rows] + t
        for name, values in columns_of_step[t].items():
            flat[name][place] = values
        columns_of_step[t] = {}  # copied: free the memory
    return flat


# ---------------------------------------------------------------------- the log


def _assemble(simulator: Simulator, blocks: list[_Part], first: int) -> LoggedData:
    offsets = ragged.offsets_from_lengths(np.concatenate([block.lengths for block in blocks]))
    flat: dict[str, Any] = {}
    for name in list(blocks[0].columns):
        pieces = [block.columns.pop(name) for block in blocks]
        flat[name] = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    info = {name[5:]: flat.pop(name) for name in list(flat) if name.startswith("info:")}
    session_offsets = None
    if SESSION_END in info:
        starts = np.concatenate([[True], info.pop(SESSION_END).astype(bool)[:-1]])
        starts[offsets[:-1]] = True
        session_offsets = ragged.offsets_from_starts(starts)
    masks = [block.final_candidates for block in blocks if block.final_candidates is not None]
    return LoggedData.from_arrays(
        **flat,
        offsets=offsets,
        session_offsets=session_offsets,
        users=np.arange(first, first + len(offsets) - 1, dtype=np.int64),
        terminated=np.concatenate([block.terminated for block in blocks]),
        final_contexts=np.concatenate([block.final_contexts for block in blocks]),
        final_candidates=np.concatenate(masks) if masks else None,
        schema=ContextSchema.numeric(simulator.context_names),
        action_space=action_space(simulator),
        metrics=info,
    )


def action_space(simulator: Simulator) -> ActionSpace:
    """The simulator's actions, with its ``action_ids`` and ``action_features`` [A, m] if it has them."""
    ids: tuple[int | str, ...] = getattr(simulator, "action_ids", tuple(range(simulator.n_actions)))
    features: Float64Array | None = getattr(simulator, "action_features", None)
    if features is None:
        return ActionSpace(ids=ids)
    plain = tuple(f"a{j}" for j in range(features.shape[1]))
    names: tuple[str, ...] = getattr(simulator, "action_feature_names", plain)
    return ActionSpace(ids=ids, features=features, feature_names=names)


# ---------------------------------------------------------------------- small helpers


def _horizon(simulator: Simulator, policy: Policy, horizon: int | None) -> int:
    if policy.n_actions != simulator.n_actions:
        raise ConfigError(
            expected=f"a policy over the {simulator.n_actions} actions of '{simulator.name}'",
            found=f"one over {policy.n_actions}",
        )
    steps = simulator.horizon if horizon is None else whole_number("horizon", horizon, least=1)
    if steps > simulator.horizon:
        raise ConfigError(
            expected=f"a horizon of at most {simulator.horizon}, the simulator's",
            found=str(steps),
            remedy="make the simulator with a larger horizon",
        )
    return steps


def _parts(n: int, first: int, batch: int | None) -> list[tuple[int, int]]:
    """(first user, number of users) of each batch."""
    size = n if batch is None else whole_number("batch", batch, least=1)
    return [(first + low, min(size, n - low)) for low in range(0, n, size)]
