"""The trained online agents: one small folder per world beside this file, and how each was trained.

The paper trains a deep SARSA agent in each world, for 1,000 / 2,000 / 10,000 trajectories in the synthetic
task, RecoGym and HIV. ``RECIPES`` says how ours were trained. A folder holds ``arrays.npz`` and
``manifest.json``; the manifest has the command that recreates the folder, and the agent's score on users that
it was not trained on. Training is deterministic for one version of torch and kind of processor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shpi.errors import ConfigError, ShpiError
from shpi.learners.online.deep_sarsa import DeepSARSA, Round
from shpi.policies import Mixture, PolicyFile, UniformPolicy, load_policy, read_policy_file, save_policy
from shpi.protocols import Policy, Simulator

FOLDER = Path(__file__).parent
EVALUATION_SEED, EVALUATION_USERS = 987_654_321, 200  # as many users as the paper rolls out
LARGEST = 300_000  # most bytes of one agent


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The training of a world's agent, and the properties of the world that it is bound to."""

    learner: DeepSARSA
    fixed: tuple[str, ...]  # attributes of the simulator that must be as in training
    practice: Mapping[str, Any] = field(default_factory=dict)  # parameters of the world while training


RECIPES = {
    "synthetic": Recipe(
        learner=DeepSARSA(episodes=1_000),
        fixed=("d", "n_actions", "tau", "rho", "action_scale", "seed_world"),
    ),
    # Clicks are rare, and the long-term reward is a lasting level: the agent learns from its differences.
    "recogym": Recipe(
        learner=DeepSARSA(episodes=2_000, batch_users=50, memory=10, epochs=1, trace=0.5, potential=100.0),
        fixed=("version", "n_products", "world"),
    ),
    # All patients start alike in the paper's setting: the agent trains on starts that differ a little. The
    # integrator is fixed, so that training gives the same agent with and without numba.
    "hiv": Recipe(
        learner=DeepSARSA(episodes=10_000, batch_users=200, memory=3, epochs=2, trace=0.8),
        fixed=("hidden", "dt_days"),
        practice={"start_spread": 0.05, "tolerance": 1e-6, "integrator": "numpy"},
    ),
    # The paper has no such agent. Episodes (months) are short, so there are many of them.
    "storefront": Recipe(
        learner=DeepSARSA(episodes=20_000, batch_users=200, epochs=2),
        fixed=("transition", "expected_reward"),
    ),
}


def shipped() -> tuple[str, ...]:
    """The worlds that have a trained agent."""
    return tuple(sorted(place.parent.name for place in FOLDER.glob("*/manifest.json")))


def describe(world: str) -> PolicyFile:
    """The manifest of a world's agent."""
    if world not in shipped():
        raise ConfigError(
            expected=f"a world with a trained agent: {', '.join(shipped()) or 'none yet'}",
            found=repr(world),
            remedy="train one with DeepSARSA and pass it as agent=",
        )
    return read_policy_file(FOLDER / world)


def load_agent(simulator: Simulator) -> Policy:
    """The trained agent of this world; an error if the simulator's settings differ from those of training."""
    described = describe(simulator.name)
    for name, value in described.notes["fixed"].items():
        fingerprint = _fingerprint(getattr(simulator, name, None))
        if fingerprint != value:
            raise ConfigError(
                expected=f"the world in which the agent of '{simulator.name}' was trained, {name} = {value}",
                found=f"{name} = {fingerprint}",
                remedy="train an agent for this world with DeepSARSA and pass it as agent=",
            )
    return load_policy(FOLDER / simulator.name)


def train_agent(
    world: str,
    path: str | Path,
    *,
    seed: int = 0,
    episodes: int | None = None,
    overwrite: bool = False,
    on_round: Callable[[Round], None] | None = None,
) -> PolicyFile:
    """Train the agent of a world by its recipe and write it to the folder ``path``."""
    from shpi.envs.registry import make

    if world not in RECIPES:
        raise ConfigError(expected=f"a world with a recipe: {', '.join(RECIPES)}", found=repr(world))
    recipe, simulator = RECIPES[world], make(world)
    learner = replace(recipe.learner, seed=seed, episodes=episodes or recipe.learner.episodes)
    agent = learner.fit(make(world, **recipe.practice), on_round=on_round)
    command = f"shpi agents train {world} --seed {seed}"
    notes = {
        "world": world,
        "fixed": {name: _fingerprint(getattr(simulator, name)) for name in recipe.fixed},
        "command": command if episodes is None else f"{command} --episodes {episodes}",
        "practice": dict(recipe.practice),
        "learner": {name: value for name, value in asdict(learner).items() if name != "progress"},
        "versions": _versions(),
        "evaluation": evaluate_agent(simulator, agent),
    }
    save_policy(agent, path, notes=notes, overwrite=overwrite)
    return read_policy_file(path)


def evaluate_agent(simulator: Simulator, agent: Policy) -> dict[str, Any]:
    """The scores of the agent without noise, with 30 % noise, and of noise alone: mean and standard error."""
    from shpi.envs.rollout import mean_return

    uniform = UniformPolicy(simulator.n_actions)
    policies = {
        "epsilon=0": agent,
        "epsilon=0.3": Mixture([agent, uniform], [0.7, 0.3]),
        "epsilon=1": uniform,
    }
    scores: dict[str, Any] = {"users": EVALUATION_USERS, "seed": EVALUATION_SEED}
    for name, policy in policies.items():
        result = mean_return(simulator, policy, EVALUATION_USERS, EVALUATION_SEED)
        values = result.returns if result.scores is None else result.scores
        error = float(values.std(ddof=1) / np.sqrt(len(values)))
        scores[name] = {"mean": float(values.mean()), "standard_error": error}
    return scores


class Check(NamedTuple):
    """The result of checking one shipped agent."""

    world: str
    problem: str  # empty: none
    sha256: str
    bytes: int


def check_agents() -> Iterator[Check]:
    """Load every shipped agent, and check its checksum and size."""
    for world in shipped():
        size = sum(place.stat().st_size for place in (FOLDER / world).iterdir())
        try:
            load_policy(FOLDER / world)
            digest = describe(world).sha256
        except ShpiError as error:
            yield Check(world, str(error), "", size)
            continue
        yield Check(world, "" if size <= LARGEST else f"larger than {LARGEST:,} bytes", digest, size)


def _fingerprint(value: Any) -> Any:
    """A setting itself, or a short hash of it if it contains arrays."""
    if isinstance(value, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
    if is_dataclass(value):
        return {item.name: _fingerprint(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, tuple | list):
        return [_fingerprint(member) for member in value]
    return value


def _versions() -> dict[str, str]:
    import torch

    return {"torch": str(torch.__version__).split("+")[0], "numpy": np.__version__}
