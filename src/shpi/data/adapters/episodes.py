"""Lists of arrays, one dict per trajectory, to and from `LoggedData`.

Other libraries call this an episode. Here it is a *trajectory*: the decisions of one user in time order,
possibly made of several sessions.

    {"contexts": [T or T+1, d], "actions": [T], "rewards": [T], "propensities": [T], "terminated": bool}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shpi.data._log import ragged
from shpi.data.actions import ActionSpace
from shpi.data.logged import LoggedData, TimeUnit
from shpi.data.schema import ContextSchema
from shpi.errors import DataError
from shpi.protocols import Int64Array

PER_DECISION = ("rewards", "propensities", "behaviour", "times", "sessions")
KNOWN = {"contexts", "actions", *PER_DECISION, "candidates", "terminated", "user", "metrics"}


def from_episodes(
    episodes: Sequence[Mapping[str, Any]],
    *,
    n_actions: int | None = None,
    action_space: ActionSpace | None = None,
    schema: ContextSchema | None = None,
    time_unit: TimeUnit = "step",
) -> LoggedData:
    """A log from one dict of arrays per trajectory. Only ``contexts`` and ``actions`` are needed.

    Args:
        episodes: The trajectories, T decisions each (T differs between them). Keys: ``contexts`` [T, d],
            or [T+1, d] when the context after the last decision is known; ``actions`` [T] integers;
            ``rewards``, ``propensities``, ``times`` [T]; ``sessions`` [T], labels that change where a
            session starts; ``behaviour`` [T, A]; ``candidates`` [T, A] or [T+1, A]; ``metrics``, a dict of
            arrays [T]; ``terminated``, a bool (or flags [T]): the user is gone for good; ``user``, an id.
            A key that one trajectory has, all must have.
        n_actions: |A|, when the log may not contain the largest action.
        action_space: Labels and features of the actions, instead of ``n_actions``.
        schema: Names and levels of the context dimensions.
        time_unit: What ``times`` are: ``"us"`` (microseconds since 1970 UTC) or ``"step"``.
    """
    _check_keys(episodes)
    lengths = np.array([len(episode["actions"]) for episode in episodes], dtype=np.int64)  # [N]
    for number, episode in enumerate(episodes):
        _check_lengths(episode, int(lengths[number]), number)
    contexts = [np.asarray(episode["contexts"], dtype=np.float32) for episode in episodes]
    known_final = np.array([len(x) for x in contexts]) > lengths  # [N]
    joined = {name: _join(episodes, name) for name in PER_DECISION}
    offsets = ragged.offsets_from_lengths(lengths)
    candidates, final_candidates = _candidates(episodes, lengths)
    first = episodes[0]
    return LoggedData.from_arrays(
        contexts=np.concatenate([x[:length] for x, length in zip(contexts, lengths, strict=True)]),
        final_contexts=np.stack([x[-1] for x in contexts]),
        final_observed=known_final,
        actions=np.concatenate([np.asarray(episode["actions"]) for episode in episodes]),
        offsets=offsets,
        session_offsets=_session_offsets(joined["sessions"], offsets),
        rewards=joined["rewards"],
        propensities=joined["propensities"],
        behaviour=joined["behaviour"],
        times=joined["times"],
        time_unit=time_unit,
        candidates=candidates,
        final_candidates=final_candidates,
        terminated=[_terminated(episode, number) for number, episode in enumerate(episodes)],
        users=np.array([episode["user"] for episode in episodes]) if "user" in first else None,
        metrics={
            name: np.concatenate([np.asarray(episode["metrics"][name]) for episode in episodes])
            for name in first.get("metrics", {})
        },
        n_actions=n_actions,
        action_space=action_space,
        schema=schema,
    )


def to_episodes(logs: LoggedData) -> list[dict[str, Any]]:
    """The inverse of `from_episodes`: one dict of arrays per trajectory, with all columns of the log."""
    columns: dict[str, NDArray[Any] | None] = {
        "actions": logs.actions,
        "rewards": logs.rewards,
        "propensities": logs.propensities,
        "behaviour": logs.behaviour,
        "times": logs.times,
        "sessions": logs.session_of_row,
    }
    episodes = []
    for i in range(logs.n_trajectories):
        rows = slice(int(logs.offsets[i]), int(logs.offsets[i + 1]))
        episode: dict[str, Any] = {
            name: values[rows] for name, values in columns.items() if values is not None
        }
        episode["contexts"] = logs.contexts[rows]
        if logs.final_observed[i]:
            episode["contexts"] = np.vstack([logs.contexts[rows], logs.final_contexts[i]])
        if logs.candidates is not None:
            episode["candidates"] = logs.candidates[rows]
            if logs.final_candidates is not None:
                episode["candidates"] = np.vstack([logs.candidates[rows], logs.final_candidates[i]])
        episode["metrics"] = {name: values[rows] for name, values in logs.metrics.items()}
        episode["terminated"] = bool(logs.terminated[i])
        episode["user"] = logs.users[i]
        episodes.append(episode)
    return episodes


def _check_keys(episodes: Sequence[Mapping[str, Any]]) -> None:
    if not episodes:
        raise DataError(expected="at least one trajectory", found="an empty list")
    wanted = set(episodes[0])
    for number, episode in enumerate(episodes):
        unknown, absent = set(episode) - KNOWN, {"contexts", "actions"} - set(episode)
        if unknown or absent:
            raise DataError(
                expected=f"the keys contexts and actions, and perhaps {sorted(KNOWN)}",
                found=f"unknown {sorted(unknown)}, missing {sorted(absent)}",
                where=f"trajectory {number}",
                remedy="put further columns under 'metrics'" if unknown else "add the missing arrays",
            )
        metrics = set(episode.get("metrics", {})) ^ set(episodes[0].get("metrics", {}))
        if set(episode) != wanted or metrics:
            raise DataError(
                expected="the same keys in every trajectory",
                found=f"a difference in {sorted((set(episode) ^ wanted) | metrics)}",
                where=f"trajectory {number} against trajectory 0",
            )


def _check_lengths(episode: Mapping[str, Any], length: int, number: int) -> None:
    if length == 0:
        raise DataError(
            expected="at least one decision per trajectory",
            found="none",
            where=f"trajectory {number}",
            remedy="leave the trajectory out",
        )
    allowed: dict[str, tuple[int, ...]] = {"contexts": (length, length + 1)}
    allowed["candidates"] = allowed["contexts"]
    allowed |= dict.fromkeys((*PER_DECISION, *episode.get("metrics", {})), (length,))
    for name, values in {**episode, **episode.get("metrics", {})}.items():
        if name in allowed and len(values) not in allowed[name]:
            wanted = " or ".join(str(count) for count in allowed[name])
            raise DataError(
                expected=f"{wanted} rows of '{name}' for {length} actions",
                found=f"{len(values)}",
                where=f"trajectory {number}",
            )


def _join(episodes: Sequence[Mapping[str, Any]], name: str) -> NDArray[Any] | None:
    if name not in episodes[0]:
        return None
    return np.concatenate([np.asarray(episode[name]) for episode in episodes])


def _candidates(
    episodes: Sequence[Mapping[str, Any]], lengths: Int64Array
) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    if "candidates" not in episodes[0]:
        return None, None
    masks = [np.asarray(episode["candidates"], dtype=bool) for episode in episodes]
    longer = np.array([len(mask) for mask in masks]) > lengths
    if longer.any() != longer.all():
        raise DataError(
            expected="candidates with T rows in every trajectory, or with T+1 in every trajectory",
            found=f"T+1 rows in {int(longer.sum())} of {len(masks)}",
        )
    inner = np.concatenate([mask[:length] for mask, length in zip(masks, lengths, strict=True)])
    return inner, np.stack([mask[-1] for mask in masks]) if longer.all() else None


def _session_offsets(labels: NDArray[Any] | None, offsets: Int64Array) -> Int64Array:
    """A session starts with each trajectory, and where the label differs from the row before."""
    if labels is None:
        return offsets
    starts = np.ones(len(labels), dtype=bool)
    starts[1:] = labels[1:] != labels[:-1]
    starts[offsets[:-1]] = True
    return ragged.offsets_from_starts(starts)


def _terminated(episode: Mapping[str, Any], number: int) -> bool:
    flags = np.atleast_1d(np.asarray(episode.get("terminated", False), dtype=bool))
    if flags[:-1].any():
        raise DataError(
            expected="a terminated flag at the last decision only",
            found=f"one at decision {int(np.flatnonzero(flags[:-1])[0])} of {len(flags)}",
            where=f"trajectory {number}",
            remedy="split the trajectory there; if only a session ends, use 'sessions' instead",
        )
    return bool(flags[-1])
