"""A Gymnasium environment as a simulator: whole episodes, one per user, as a log.

Works with a single environment or a vector of them, and without importing Gymnasium: only the attributes of
its interface are used. Actions must be `Discrete`, observations a `Box` (flattened) or `Discrete` (one-hot).
``info["action_mask"]`` and ``info["session_end"]`` are honoured where they exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shpi.data._log import ragged
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, EpisodeError
from shpi.policies import sample_actions
from shpi.protocols import BoolArray, Float32Array, FloatArray, Int64Array, Policy

MAX_STEPS = 1_000_000  # per rollout: an environment without a time limit may never end


class World(Protocol):
    """The protocol of a world: its actions, and the log of new users under a policy.

    Every `shpi.protocols.Simulator` is one.
    """

    @property
    def n_actions(self) -> int:
        """|A|."""
        ...

    def rollout(self, policy: Policy, n: int, seed: int, *, first: int = 0) -> LoggedData:
        """The log of n users under ``policy``, with its propensities."""
        ...


def as_world(env: Any) -> World:
    """A simulator as it is, a Gymnasium environment through `GymWorld`."""
    if callable(getattr(env, "rollout", None)) and hasattr(env, "n_actions"):
        world: World = env
        return world
    if all(hasattr(env, name) for name in ("reset", "step", "action_space", "observation_space")):
        return GymWorld(env)
    raise ConfigError(
        expected="a simulator (n_actions, rollout) or a Gymnasium environment",
        found=f"a {type(env).__name__}",
        where="OnlineSHPI.fit",
        remedy="use shpi.envs.make(name), or gymnasium.make or make_vec",
    )


class GymWorld:
    """Episodes of a Gymnasium environment; episode i of a rollout is user first + i."""

    def __init__(self, env: Any) -> None:
        self.vector: Any = env if hasattr(env, "num_envs") else _Single(env)
        mode = getattr(self.vector, "metadata", {}).get("autoreset_mode")
        if str(getattr(mode, "value", mode)) not in ("NextStep", "None"):
            raise ConfigError(
                expected="a vector environment that resets at the next step, Gymnasium's default",
                found=f"autoreset_mode {mode}",
                remedy="make it with autoreset_mode=AutoresetMode.NEXT_STEP",
            )
        self.n_actions = _count(self.vector.single_action_space, "actions")
        space = self.vector.single_observation_space
        if not getattr(space, "shape", None) and not hasattr(space, "n"):
            raise ConfigError(
                expected="Box or Discrete observations",
                found=str(space),
                remedy="wrap the environment in gymnasium.wrappers.FlattenObservation",
            )
        self._states = _count(space, "observations") if hasattr(space, "n") else None

    def rollout(self, policy: Policy, n: int, seed: int, *, first: int = 0) -> LoggedData:
        """The log of n episodes under ``policy``.

        Each place of a vector serves its share of them, so that short episodes are not preferred.
        """
        env, m = self.vector, int(self.vector.num_envs)
        words = np.random.SeedSequence((seed, first)).generate_state(2)
        rng = np.random.default_rng(int(words[0]))
        observations, info = env.reset(seed=int(words[1] >> 1))
        served, quota = np.zeros(m, dtype=np.int64), (n + np.arange(m)[::-1]) // m
        book = _Book(places=m)
        over = np.zeros(m, dtype=bool)  # at the next step the environment only resets itself there
        for _ in range(MAX_STEPS):
            contexts, mask = self._contexts(observations), _mask(info, m, self.n_actions)
            probs = policy.action_probs(contexts, mask)
            actions = sample_actions(probs, rng.random(m))
            observations, rewards, terminated, truncated, info = env.step(actions)
            live = np.flatnonzero(~over & (served < quota))
            over = np.asarray(terminated | truncated)
            book.add(live, served, contexts, actions, rewards, probs, mask, info)
            ended = live[over[live]]
            book.end(ended, served, self._contexts(observations), np.asarray(terminated))
            served[ended] += 1
            if (served >= quota).all():
                return book.log(first, self.n_actions)
        raise EpisodeError(
            expected=f"{n} episodes to end within {MAX_STEPS:,} steps",
            found=f"{int(served.sum())}",
            remedy="give the environment a limit: gymnasium.wrappers.TimeLimit",
        )

    def _contexts(self, observations: Any) -> Float32Array:
        """Observations as contexts [m, d]."""
        if self._states is not None:
            shown: Float32Array = np.eye(self._states, dtype=np.float32)[np.asarray(observations)]
            return shown
        array = np.array(observations, dtype=np.float32)  # a copy: environments reuse their arrays
        return array.reshape(len(array), -1)


@dataclass
class _Book:
    """The steps so far."""

    places: int
    rows: list[dict[str, NDArray[Any]]] = field(default_factory=list)
    ends: list[dict[str, NDArray[Any]]] = field(default_factory=list)

    def add(
        self,
        live: Int64Array,
        served: Int64Array,
        contexts: FloatArray,
        actions: Int64Array,
        rewards: Any,
        probs: FloatArray,
        mask: BoolArray | None,
        info: dict[str, Any],
    ) -> None:
        columns = {
            "episode": served[live] * self.places + live,
            "contexts": contexts[live],
            "actions": actions[live],
            "rewards": np.asarray(rewards, dtype=np.float64)[live],
            "propensities": probs[live, actions[live]],
            "session_end": np.broadcast_to(np.asarray(info.get("session_end", False)), self.places)[live],
        }
        if mask is not None:
            columns["candidates"] = mask[live]
        self.rows.append(columns)

    def end(self, ended: Int64Array, served: Int64Array, contexts: FloatArray, terminated: BoolArray) -> None:
        self.ends.append(
            {
                "episode": served[ended] * self.places + ended,
                "final_contexts": contexts[ended],
                "terminated": terminated[ended],
            }
        )

    def log(self, first: int, n_actions: int) -> LoggedData:
        """From lists over time to flat arrays, episode after episode."""
        rows, ends = _joined(self.rows), _joined(self.ends)
        _, lengths = np.unique(rows.pop("episode"), return_counts=True)
        ends.pop("episode")
        offsets = ragged.offsets_from_lengths(lengths)
        starts = np.concatenate([[True], rows.pop("session_end").astype(bool)[:-1]])
        starts[offsets[:-1]] = True
        return LoggedData.from_arrays(
            **rows,
            **ends,
            offsets=offsets,
            session_offsets=ragged.offsets_from_starts(starts),
            users=np.arange(first, first + len(lengths), dtype=np.int64),
            n_actions=n_actions,
        )


class _Single:
    """A single environment as a vector of one, which resets itself at the step after an end."""

    num_envs = 1

    def __init__(self, env: Any) -> None:
        self.env, self.over = env, False
        self.single_action_space, self.single_observation_space = env.action_space, env.observation_space

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed)
        self.over = False
        return np.asarray(observation)[None], info

    def step(self, actions: Int64Array) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if self.over:
            observation, info = self.reset()
            return observation, np.zeros(1), np.zeros(1, dtype=bool), np.zeros(1, dtype=bool), info
        observation, reward, terminated, truncated, info = self.env.step(int(actions[0]))
        self.over = bool(terminated or truncated)
        return (
            np.asarray(observation)[None],
            np.array([reward]),
            np.array([terminated]),
            np.array([truncated]),
            info,
        )


def _joined(parts: list[dict[str, NDArray[Any]]]) -> dict[str, Any]:
    """One array per name, sorted by episode; time keeps its order."""
    flat = {name: np.concatenate([block[name] for block in parts]) for name in parts[0]}
    order = np.argsort(flat["episode"], kind="stable")
    return {name: values[order] for name, values in flat.items()}


def _mask(info: dict[str, Any], m: int, n_actions: int) -> BoolArray | None:
    """The allowed actions [m, A]; all where the environment does not say."""
    if "action_mask" not in info:
        return None
    mask = np.asarray(info["action_mask"]).astype(bool).reshape(m, n_actions)
    said: BoolArray = np.broadcast_to(np.asarray(info.get("_action_mask", True)), m)
    return np.where(said[:, None], mask, True)


def _count(space: Any, what: str) -> int:
    """The size of a discrete space that counts from 0."""
    if not hasattr(space, "n") or int(getattr(space, "start", 0)) != 0:
        raise ConfigError(expected=f"Discrete {what} that count from 0", found=str(space), where="GymWorld")
    return int(space.n)
