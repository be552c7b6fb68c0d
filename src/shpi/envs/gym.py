"""Gymnasium environments of the simulators; ``import shpi.envs`` registers them if Gymnasium is installed.

    gymnasium.make("shpi/HIV-v0")                          one user
    gymnasium.make("shpi/Synthetic-v0", tau=5)             parameters of the simulator
    gymnasium.make_vec("shpi/HIV-v0", num_envs=1000)       a batch simulator, not a thousand environments

Episode i of an environment that was reset with seed s is user i of the batch simulator with seed s, so both
use the same random numbers. Observations are float32, as in a log. An episode is *terminated* when the user
is gone, and *truncated* at the horizon. If actions are masked, ``info["action_mask"]`` says which are allowed
(int8, 1 = allowed).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from shpi.envs.base import check_actions, whole_number
from shpi.envs.registry import make
from shpi.errors import EpisodeError, MissingExtraError
from shpi.protocols import BoolArray, Float32Array, FloatArray, Int64Array, IntArray, Simulator

try:
    import gymnasium
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError:
    raise MissingExtraError("gymnasium", "envs") from None

IDS = {
    "shpi/Synthetic-v0": "synthetic",
    "shpi/SyntheticLarge-v0": "synthetic-large",
    "shpi/Storefront-v0": "storefront",
    "shpi/HIV-v0": "hiv",
    "shpi/RecoGym-v0": "recogym",
}


class SimulatorEnv(gymnasium.Env[Float32Array, np.int64]):
    """One user of a simulator at a time.

    Args:
        world: a registered name, or a simulator object.
        params: parameters of the named simulator.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, world: str | Simulator, **params: Any) -> None:
        self.simulator = _simulator(world, params)
        self.observation_space, self.action_space = _spaces(self.simulator)
        self._seed, self._user, self._steps, self._over = -1, 0, 0, True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32Array, dict[str, Any]]:
        """Start the next user. A seed starts again with user 0; ``options={"user": i}`` picks one."""
        super().reset(seed=seed)
        if seed is not None or self._seed < 0:
            self._seed, self._user = int(self.np_random_seed if seed is None else seed), 0
        self._user = int((options or {}).get("user", self._user))
        contexts = self.simulator.reset(1, self._seed, first=self._user)
        self._user, self._steps, self._over = self._user + 1, 0, False
        return _observation(contexts)[0], _mask_info(self.simulator, single=True)

    def step(self, action: Any) -> tuple[Float32Array, float, bool, bool, dict[str, Any]]:
        """Let one decision take effect."""
        if self._over:
            raise EpisodeError(
                expected="a running episode", found="one that is over", remedy="call reset() first"
            )
        outcome = self.simulator.step(np.asarray([action]))
        self._steps += 1
        terminated = bool(outcome.ended[0])
        truncated = not terminated and self._steps >= self.simulator.horizon
        self._over = terminated or truncated
        info = {key: values[0].item() for key, values in _arrays(outcome.info, 1)}
        info |= _mask_info(self.simulator, single=True)
        return (
            _observation(outcome.contexts)[0],
            float(outcome.rewards[0]),
            terminated,
            truncated,
            info,
        )


@dataclass
class _Cohort:
    """Users that started together. They advance together, even if only some of them are still running."""

    simulator: Simulator
    slots: Int64Array  # [m] index of each user in the vector environment
    running: BoolArray  # [m] False once the user has ended; its index then belongs to a younger cohort
    steps: int = 0


class SimulatorVectorEnv(VectorEnv[Float32Array, Any, Any]):
    """Many users at once, with Gymnasium's autoreset: a user who has ended is replaced at the next step.

    Users who start together form a cohort, which one simulator advances as arrays. If everyone stays until
    the horizon, there is always a single cohort. New users are numbered in the order of their start.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, world: str | Simulator, num_envs: int = 1, **params: Any) -> None:
        prototype = _simulator(world, params)
        self.num_envs = whole_number("num_envs", num_envs, least=1)
        self._idle, self._prototype = [prototype], prototype
        self.single_observation_space, self.single_action_space = _spaces(prototype)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._cohorts: list[_Cohort] = []
        self._seed, self._next_user = -1, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32Array, dict[str, Any]]:
        """Start num_envs users: 0, 1, … after a seed, and the following ones without."""
        super().reset(seed=seed)
        if seed is not None or self._seed < 0:
            self._seed, self._next_user = int(self.np_random_seed or 0) if seed is None else int(seed), 0
        self._idle += [cohort.simulator for cohort in self._cohorts]
        self._cohorts = []
        self._over = np.zeros(self.num_envs, dtype=bool)
        observations = np.empty(self.observation_space.shape or (), dtype=np.float32)
        infos: dict[str, Any] = {}
        self._start(np.arange(self.num_envs, dtype=np.int64), observations, infos)
        return observations, infos

    def step(
        self, actions: IntArray
    ) -> tuple[Float32Array, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Let one decision take effect for every running user, and start a user where one had ended."""
        if self._seed < 0:
            raise EpisodeError(expected="a reset before the first step", found="none")
        given = check_actions(actions, self.num_envs, self._prototype.n_actions, ended=self._over)
        observations = np.empty(self.observation_space.shape or (), dtype=np.float32)
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros(self.num_envs, dtype=bool), np.zeros(self.num_envs, dtype=bool)
        infos: dict[str, Any] = {}
        replaced = np.flatnonzero(self._over)
        for cohort in self._cohorts:
            rows = np.flatnonzero(cohort.running)
            places = cohort.slots[rows]
            own = np.zeros(len(cohort.slots), dtype=np.int64)
            own[rows] = given[places]
            outcome = cohort.simulator.step(own)
            cohort.steps += 1
            observations[places] = _observation(outcome.contexts[rows])
            rewards[places] = outcome.rewards[rows]
            terminated[places] = outcome.ended[rows]
            truncated[places] = ~outcome.ended[rows] & (cohort.steps >= cohort.simulator.horizon)
            cohort.running[rows] = ~(terminated[places] | truncated[places])
            for key, values in _arrays(outcome.info, len(own)):
                _scatter(infos, key, places, values[rows], self.num_envs)
            _scatter_mask(infos, cohort.simulator, places, rows, self.num_envs)
        self._over = terminated | truncated
        self._idle += [cohort.simulator for cohort in self._cohorts if not cohort.running.any()]
        self._cohorts = [cohort for cohort in self._cohorts if cohort.running.any()]
        if len(replaced):
            self._start(replaced, observations, infos)
        return observations, rewards, terminated, truncated, infos

    def _start(self, slots: Int64Array, observations: Float32Array, infos: dict[str, Any]) -> None:
        simulator = self._idle.pop() if self._idle else copy.deepcopy(self._prototype)
        contexts = simulator.reset(len(slots), self._seed, first=self._next_user)
        self._next_user += len(slots)
        self._cohorts.append(_Cohort(simulator, slots, np.ones(len(slots), dtype=bool)))
        observations[slots] = _observation(contexts)
        _scatter_mask(infos, simulator, slots, np.arange(len(slots)), self.num_envs)


# ---------------------------------------------------------------------- small helpers


def _simulator(world: str | Simulator, params: dict[str, Any]) -> Simulator:
    return make(world, **params) if isinstance(world, str) else world


def _spaces(simulator: Simulator) -> tuple[Any, gymnasium.spaces.Discrete]:
    width = len(simulator.context_names)
    box = gymnasium.spaces.Box(-np.inf, np.inf, shape=(width,), dtype=np.float32)
    return box, gymnasium.spaces.Discrete(simulator.n_actions)


def _observation(contexts: FloatArray) -> Float32Array:
    return contexts.astype(np.float32)


def _arrays(info: dict[str, Any], n: int) -> list[tuple[str, Any]]:
    """The entries of a simulator's info that have one plain value per user."""
    return [
        (key, values)
        for key, values in info.items()
        if isinstance(values, np.ndarray) and values.shape == (n,) and values.dtype.kind in "biuf"
    ]


def _mask_info(simulator: Simulator, *, single: bool) -> dict[str, Any]:
    allowed = simulator.candidates()
    if allowed is None:
        return {}
    mask = allowed.astype(np.int8)
    return {"action_mask": mask[0] if single else mask}


def _scatter(infos: dict[str, Any], key: str, places: Int64Array, values: Any, n: int) -> None:
    """Write a Gymnasium vector info: an array over all users, and a mask of valid entries as ``_key``."""
    if key not in infos:
        infos[key] = np.zeros((n, *values.shape[1:]), dtype=values.dtype)
        infos[f"_{key}"] = np.zeros(n, dtype=bool)
    infos[key][places] = values
    infos[f"_{key}"][places] = True


def _scatter_mask(
    infos: dict[str, Any], simulator: Simulator, places: Int64Array, rows: Int64Array, n: int
) -> None:
    for key, mask in _mask_info(simulator, single=False).items():
        _scatter(infos, key, places, mask[rows], n)


def register() -> None:
    """Register every id with Gymnasium; calling it twice is harmless."""
    for identifier, name in IDS.items():
        if identifier not in gymnasium.registry:
            gymnasium.register(
                id=identifier,
                entry_point="shpi.envs.gym:SimulatorEnv",
                vector_entry_point="shpi.envs.gym:SimulatorVectorEnv",
                kwargs={"world": name},
                order_enforce=False,
            )


register()
