"""What can be learned in RecoGym of the authors' release: constant policies, noise, and empty contexts.

The world has seed 0. Constant policies are compared on 600 users (seed 1), the best is tested on 8,000 (seed
2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.report import Row
from shpi.data._log.release import ReleasedRows
from shpi.envs.recogym.simulator import RecoGym
from shpi.envs.rollout import mean_return, rollout
from shpi.learners import OfflineSHPI
from shpi.policies import ConstantPolicy, UniformPolicy
from shpi.protocols import BoolArray, Float64Array, FloatArray, Policy

USERS, FEW, ROLLOUTS = 8000, 600, 200


@dataclass(frozen=True)
class MostViewed:
    """Recommends one of the products viewed most in the last organic phase; any product without one."""

    n_actions: int

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """Equal probabilities for the most viewed, [n, A]."""
        del candidates
        best = contexts == np.max(contexts, axis=1, keepdims=True)
        return np.asarray(best / best.sum(axis=1, keepdims=True), dtype=np.float64)


def run() -> list[Row]:
    return [row for products in (10, 100) for row in _of(products)]


def _of(products: int) -> list[Row]:
    world = RecoGym.released(n_products=products, world_seed=0)

    def tried(name: str, policy: Policy, users: int = USERS, seed: int = 1) -> Row:
        scores = mean_return(world, policy, users, seed).scores
        assert scores is not None
        error = scores.std() / np.sqrt(users)
        return Row(f"P = {products}: {name}", float(scores.mean()), "mean Y", f"± {error:.3f}, {users} users")

    uniform = UniformPolicy(products)
    means = [mean_return(world, uniform, ROLLOUTS, seed).mean for seed in range(100, 120)]
    always = [ConstantPolicy(row) for row in np.eye(products)]
    constants = [tried("", policy, FEW).value for policy in always]
    logs = rollout(world, uniform, 2000, 3)
    empty = float((logs.contexts.sum(axis=1) == 0).mean())
    rows = [
        tried("uniform", uniform),
        tried("most viewed in the last phase", MostViewed(products)),
        tried("best constant, new users", always[int(np.argmax(constants))], seed=2),
        Row(f"P = {products}: lowest constant", min(constants), "mean Y", f"{FEW} users"),
        Row(f"P = {products}: highest constant", max(constants), "mean Y", f"{FEW} users"),
        Row(f"P = {products}: deviation of a mean", float(np.std(means)), "Y", f"{ROLLOUTS} users, uniform"),
        Row(f"P = {products}: empty contexts", empty, "share"),
    ]
    for variant in ("difference", "level"):
        view = ReleasedRows(length=50, step=10, rewards=variant)
        policy = OfflineSHPI.released(view=view, progress=False).fit(logs)
        rows.append(tried(f"released(), {variant}", policy, USERS // 2, 5))
    return rows
