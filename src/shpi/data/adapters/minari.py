"""Minari datasets, to and from `LoggedData`.

A Minari episode has T+1 observations, T actions and rewards, and T flags *terminations* and *truncations*.
It is one trajectory here. What Minari has no field for goes into ``infos``, with T+1 rows like the
observations (the last row is a filler): propensity, time, session, user, candidates, behaviour, further
metrics. Names and labels go into the dataset's metadata under the key ``shpi``, as JSON.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shpi.data._log.ledger import Ledger
from shpi.data.actions import ActionSpace
from shpi.data.adapters.episodes import from_episodes, to_episodes
from shpi.data.logged import LoggedData
from shpi.data.schema import ContextSchema
from shpi.errors import ConfigError, DataError

METRIC = "metric:"  # prefix of further metrics in infos
INFOS = {"propensity": "propensities", "behaviour": "behaviour", "time": "times", "session": "sessions"}
FURTHER = {"reward_observed": np.bool_, "immediate": np.float64}  # columns of a log that episodes do not have


def to_minari(logs: LoggedData, dataset_id: str, *, data_format: str = "arrow", **details: Any) -> Any:
    """Write a log as a local Minari dataset, and return it.

    Minari writes one folder or group per trajectory: good for hundreds of users, and for thousands with
    ``data_format="hdf5"``.

    Args:
        logs: The log. It must have rewards.
        dataset_id: Minari's id, such as ``"shop/banners-v0"``. An id that exists is an error.
        data_format: ``"arrow"`` (needs pyarrow), ``"parquet"`` or ``"hdf5"`` (needs h5py).
        details: More arguments of ``minari.create_dataset_from_buffers``, such as ``author``.
    """
    minari, spaces = _minari()
    if logs.rewards is None:
        raise DataError(
            expected="a log with rewards", found="none", remedy="choose one with logs.with_rewards(...)"
        )
    folder = Path(minari.storage.datasets_root_dir.get_dataset_path(dataset_id))
    if folder.exists():
        raise ConfigError(
            expected="a dataset id that is not in use",
            found=f"'{dataset_id}', which exists",
            remedy="raise its version (-v1), or remove it with minari.delete_dataset",
        )
    labels, codes = np.unique(logs.users, return_inverse=True)
    named_users = labels.dtype.kind not in "iu"
    limit = np.full(logs.schema.width, np.inf, dtype=np.float32)
    try:
        dataset = minari.create_dataset_from_buffers(
            dataset_id,
            list(_buffers(logs, codes if named_users else logs.users)),
            observation_space=spaces.Box(-limit, limit, dtype=np.float32),
            action_space=spaces.Discrete(logs.n_actions),
            data_format=data_format,
            **details,
        )
        extra = {
            "context": logs.schema.to_json(),
            "actions": logs.action_space.to_json(),
            "ledger": logs.ledger.to_json(),
            "propensity_mode": logs.propensity_mode,
            "time_unit": logs.time_unit,
            "users": labels.tolist() if named_users else None,
            "final_candidates": logs.final_candidates is not None,
        }
        dataset.storage.update_metadata({"shpi": json.dumps(extra)})
    except BaseException:  # also on an interrupt: no half-written dataset stays behind
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return dataset


def from_minari(dataset: Any) -> LoggedData:
    """A log from a Minari dataset (or its id) with vector observations and discrete actions.

    Every episode becomes a trajectory: terminated if its last termination flag is set, else truncated.
    A dataset that `to_minari` wrote comes back as it was. In any other, ``infos`` may hold ``propensity``,
    ``behaviour``, ``time``, ``session``, ``user``, ``candidates`` and ``metric:…``; without them each episode
    is one user and one session, and propensities are absent.
    """
    minari, spaces = _minari()
    if isinstance(dataset, str):
        dataset = minari.load_dataset(dataset)
    _check_spaces(dataset, spaces)
    extra = json.loads(dataset.storage.metadata.get("shpi", "{}"))
    start = int(getattr(dataset.action_space, "start", 0))
    episodes = [_episode(episode, start, extra) for episode in dataset.iterate_episodes()]
    if not episodes:
        raise DataError(expected="at least one episode", found="an empty Minari dataset")
    if not extra:
        ids = tuple(range(start, start + int(dataset.action_space.n)))
        return from_episodes([plain for plain, _, _ in episodes], action_space=ActionSpace(ids=ids))
    logs = from_episodes(
        [plain for plain, _, _ in episodes],
        action_space=ActionSpace.from_json(extra["actions"]),
        schema=ContextSchema.from_json(extra["context"]),
        time_unit=extra["time_unit"],
    )
    columns: dict[str, Any] = {
        name: np.concatenate([further[name] for _, _, further in episodes]) for name in episodes[0][2]
    }
    return replace(
        logs,
        final_observed=np.array([final for _, final, _ in episodes]),
        **columns,
        propensity_mode=extra["propensity_mode"],
        ledger=Ledger.from_json(extra["ledger"]),
    )


def _minari() -> tuple[Any, Any]:
    try:
        import minari
        import minari.storage.datasets_root_dir
        from gymnasium import spaces
    except ImportError:
        raise ConfigError(
            expected="the package 'minari'",
            found="that it is not installed",
            remedy="pip install 'minari[arrow]'",
        ) from None
    return minari, spaces


def _check_spaces(dataset: Any, spaces: Any) -> None:
    for space, kind, name in (
        (dataset.observation_space, spaces.Box, "observation space: a Box"),
        (dataset.action_space, spaces.Discrete, "action space: Discrete"),
    ):
        if not isinstance(space, kind):
            raise DataError(
                expected=f"in the {name}",
                found=type(space).__name__,
                where=f"Minari dataset '{dataset.spec.dataset_id}'",
                remedy="build the arrays yourself and use from_episodes",
            )


def _buffers(logs: LoggedData, users: NDArray[Any]) -> Iterator[Any]:
    """One Minari episode per trajectory."""
    from minari.data_collector.episode_buffer import EpisodeBuffer

    for i, episode in enumerate(to_episodes(logs)):
        length = len(episode["actions"])
        rows = slice(int(logs.offsets[i]), int(logs.offsets[i + 1]))
        contexts = np.vstack([logs.contexts[rows], logs.final_contexts[i]])
        infos: dict[str, Any] = {
            "user": [int(users[i])] * (length + 1),
            "final_observed": [bool(logs.final_observed[i])] * (length + 1),
        }
        for ours, theirs in INFOS.items():
            if theirs in episode:
                infos[ours] = _padded(episode[theirs])
        for name, values in episode["metrics"].items():
            infos[METRIC + name] = _padded(values)
        for name in FURTHER:
            values = getattr(logs, name)
            if values is not None:
                infos[name] = _padded(values[rows])
        if "candidates" in episode:
            mask = episode["candidates"]
            filler = np.ones((length + 1 - len(mask), logs.n_actions), dtype=bool)
            infos["candidates"] = np.vstack([mask, filler]).astype(np.int8)
        end = np.zeros(length, dtype=bool)
        end[-1] = True
        yield EpisodeBuffer(
            id=i,
            observations=contexts,
            actions=episode["actions"].astype(np.int64),
            rewards=episode["rewards"].tolist(),
            terminations=(end & episode["terminated"]).tolist(),
            truncations=(end & (not episode["terminated"])).tolist(),
            infos=infos,
        )


def _padded(values: NDArray[Any]) -> Any:
    """T rows and a filler. Lists where 1-D: Minari's Arrow storage cannot read 1-D arrays back."""
    padded = np.concatenate([values, values[-1:]])
    return padded.tolist() if padded.ndim == 1 else padded


def _episode(
    episode: Any, start: int, extra: dict[str, Any]
) -> tuple[dict[str, Any], bool, dict[str, NDArray[Any]]]:
    """The arrays of `from_episodes`, whether the last context was observed, and further columns of a log."""
    length, infos = len(episode.rewards), episode.infos or {}
    contexts = np.asarray(episode.observations, dtype=np.float32).reshape(length + 1, -1)
    plain: dict[str, Any] = {
        "contexts": contexts,
        "actions": np.asarray(episode.actions).astype(np.int64) - start,
        "rewards": episode.rewards,
        "terminated": episode.terminations,
        "metrics": {
            key.removeprefix(METRIC): values[:length]
            for key, values in infos.items()
            if key.startswith(METRIC)
        },
    }
    for ours, theirs in INFOS.items():
        if ours in infos:
            plain[theirs] = np.asarray(infos[ours])[:length]
    if "candidates" in infos:
        whole = extra.get("final_candidates", True)
        plain["candidates"] = np.asarray(infos["candidates"], dtype=bool)[: length + whole]
    if "user" in infos:
        user = np.asarray(infos["user"])[0]
        plain["user"] = extra["users"][int(user)] if extra.get("users") else user
    final = bool(np.asarray(infos.get("final_observed", [True]))[0])
    further: dict[str, NDArray[Any]] = {
        name: np.asarray(infos[name])[:length].astype(dtype)
        for name, dtype in FURTHER.items()
        if name in infos
    }
    return plain, final, further
