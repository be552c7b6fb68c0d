"""The synthetic task: steps per CPU-second at d = 2 and d = 100, and memory against the number of users."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np

from benchmarks.report import Row
from shpi.envs.rollout import rollout
from shpi.envs.synthetic.simulator import Synthetic
from shpi.policies import UniformPolicy

GOAL = ">= 1000000"


def steps_per_second(world: Synthetic, n: int, repeats: int) -> tuple[float, float]:
    """User-steps per CPU-second: the steps alone, and whole trajectories with the reset; best of several."""
    rng = np.random.default_rng(0)
    actions = rng.integers(0, world.n_actions, (world.horizon, n))
    alone, whole = [], []
    for repeat in range(repeats):
        began = time.process_time()
        world.reset(n, repeat)
        ready = time.process_time()
        for decision in actions:
            world.step(decision)
        done = time.process_time()
        alone.append(actions.size / (done - ready))
        whole.append(actions.size / (done - began))
    return max(alone), max(whole)


def naive_steps_per_second(steps: int = 1500) -> float:
    """The peer: a plain implementation of the definition for one user at a time."""
    rng, vectors = np.random.default_rng(0), Synthetic().action_features
    began = time.process_time()
    w = [rng.normal(size=2) for _ in range(30)]
    a = [np.zeros(2)] * 30
    for _ in range(steps):
        a[-1] = vectors[rng.integers(10)]
        w.append(np.mean([w[-1 - i] + a[-1 - i] for i in range(10)], axis=0))
        a.append(np.zeros(2))
        x = np.mean(w[-30:], axis=0)
        _ = -np.sum(x**4 - 16 * x**2 + 5 * x)
    return steps / (time.process_time() - began)


def log_steps_per_second(n: int) -> float:
    world, policy = Synthetic(), UniformPolicy(10)
    began = time.process_time()
    decisions = len(rollout(world, policy, n, seed=0))
    return decisions / (time.process_time() - began)


def bytes_of_simulator(world: Synthetic, n: int) -> int:
    """Peak bytes of a reset and a few steps."""
    tracemalloc.start()
    world.reset(n, 0)
    for _ in range(3):
        world.step(np.zeros(n, dtype=np.int64))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def run() -> list[Row]:
    small, small_whole = steps_per_second(Synthetic(), 10_000, 3)
    large, large_whole = steps_per_second(Synthetic.large(), 1_000, 2)
    naive = naive_steps_per_second()
    few, many = (bytes_of_simulator(Synthetic(), n) for n in (2_000, 20_000))
    return [
        Row("d=2, steps", small, "steps/CPU-s", "10,000 users together", GOAL),
        Row("d=2, with the reset", small_whole, "steps/CPU-s", "whole trajectories of 150 steps", GOAL),
        Row("d=2, against the definition", small / naive, "times", f"one user at a time: {naive:,.0f}/s"),
        Row("d=2, with policy and log", log_steps_per_second(10_000), "steps/CPU-s", "rollout, uniform"),
        Row("d=100, steps", large, "steps/CPU-s", "1,000 users together, 300 actions"),
        Row("d=100, with the reset", large_whole, "steps/CPU-s", "whole trajectories of 150 steps"),
        Row("memory per user", many / 20_000, "bytes", "d=2, peak of reset and steps"),
        Row("memory, 10x the users", many / few, "times", "linear is 10", "<= 11"),
    ]
