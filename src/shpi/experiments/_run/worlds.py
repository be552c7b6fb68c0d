"""Simulators, logging policies and logs of the experiments.

Cells of one log come one after the other, so a process caches the last log and what its cells share: values,
clones, policies, true values. No result depends on the order of the cells.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, cast

from shpi.data.logged import LoggedData
from shpi.envs import make
from shpi.envs.logging import LoggingPolicy
from shpi.envs.rollout import mean_return, rollout
from shpi.envs.synthetic.simulator import Synthetic
from shpi.experiments._run.cells import Log
from shpi.protocols import Policy, Simulator
from shpi.values import FittedValue, ValueModel

NEW_USERS = 10_007  # added to the seed of a log for the seed of the new users
T = TypeVar("T")
_cache: dict[str, Any] = {}  # the last log, and what its cells share


def world(name: str, params: Mapping[str, Any]) -> Simulator:
    """The simulator of that name; cached, since some are fitted to data."""
    return _world(name, _text(params))


def logging_policy(name: str, params: Mapping[str, Any], epsilon: float) -> Policy:
    """mu(epsilon): the world's trained agent; in the large synthetic task, the simple controller."""
    simulator = world(name, params)
    if isinstance(simulator, Synthetic) and simulator.d > 2:
        from shpi.envs.synthetic.reference import SimpleController

        return LoggingPolicy(simulator, epsilon, SimpleController.of(simulator))
    if name == "kuairand" and epsilon < 1:
        return LoggingPolicy(simulator, epsilon, _kuairand_agent(_text(params)))
    return LoggingPolicy(simulator, epsilon)


def simulate(log: Log) -> LoggedData:
    """Simulate a log; it and what is learned from it stay cached until another log is requested."""
    if f"log {log.key}" not in _cache:
        _cache.clear()
    return cached(f"log {log.key}", lambda: _simulated(log))


def _simulated(log: Log) -> LoggedData:
    mu = logging_policy(log.world, log.params, log.epsilon)
    return rollout(world(log.world, log.params), mu, log.users, log.seed)


def cached(key: str, make: Callable[[], T]) -> T:
    """The result of ``make``, cached for all cells of the last log under a key."""
    if key not in _cache:
        _cache[key] = make()
    return cast("T", _cache[key])


def cached_fit(key: str, fit: Callable[[], T], saved: list[float]) -> T:
    """A cached fit; if it was in the cache, the CPU seconds saved are appended to ``saved``."""

    def timed() -> tuple[T, float]:
        began = time.process_time()
        return fit(), time.process_time() - began

    known = key in _cache
    fitted, seconds = cached(key, timed)
    if known:
        saved.append(seconds)
    return fitted


def score(name: str, params: Mapping[str, Any], policy: Policy, rollouts: int, seed: int) -> dict[str, float]:
    """The score of a policy on new users, and the attained share if the simulator knows it.

    The users are the same for every policy of a seed, so differences between methods are paired.
    """
    simulator = world(name, params)
    values = {"score": mean_return(simulator, policy, rollouts, seed + NEW_USERS).mean}
    attained: Any = getattr(simulator, "fraction_attained", None)
    if attained is not None:
        values["attained"] = float(attained().mean())
    return values


@dataclass(frozen=True)
class CachedValue:
    """A value model that is fitted once for all cells of a log with the same settings.

    The k of an ablation does not change V. `CachedValue.saved` lists the CPU seconds that were saved, to be
    added to the reported time.
    """

    model: ValueModel
    log: Log
    saved: list[float]

    def fit(self, logs: LoggedData, *, gamma: float, seed: int) -> FittedValue:
        """The value function that the model fits, from the cache if possible."""
        key = f"value {self.log.key} {self.model!r} {gamma} {seed} {len(logs)}"
        return cached_fit(key, lambda: self.model.fit(logs, gamma=gamma, seed=seed), self.saved)


@lru_cache(maxsize=8)
def _world(name: str, params: str) -> Simulator:
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in json.loads(params).items()}
    if name != "kuairand":
        return make(name, **settings)
    reward, assumed = settings.pop("reward", "long_term"), settings.pop("assumed", 0.0)
    fitted: Any = _kuairand(json.dumps(settings, sort_keys=True))
    simulator: Simulator = fitted.with_reward(reward).with_assumed(assumed, "day_long_views")
    return simulator


@lru_cache(maxsize=1)
def _kuairand(params: str) -> Simulator:
    """The fitted KuaiRand world; cached, since the fit takes longer than most cells."""
    return make("kuairand", **json.loads(params))


@lru_cache(maxsize=2)
def _kuairand_agent(params: str) -> Policy:
    """An agent trained by deep SARSA, like the shipped ones; this world's data cannot be shipped."""
    from shpi.learners.online.deep_sarsa import DeepSARSA

    return DeepSARSA(episodes=1000, batch_users=50, epochs=1).fit(_world("kuairand", params))


def _text(params: Mapping[str, Any]) -> str:
    return json.dumps(dict(params), sort_keys=True)
