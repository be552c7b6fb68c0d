"""Simulators: many users advance together as arrays, and user i depends on (seed, i) alone.

    synthetic    Synthetic              slow contexts, delayed effects (the paper's appendix)
    storefront   Storefront             the introduction's example, with exact values
    hiv          HIV                    treatment of HIV patients
    recogym      RecoGym                browsing and recommendations
    world        WorldModel             a simulator fitted to any log
    kuairand     kuairand_world         the world of KuaiRand, a short-video app
    registry     make, names            simulators by name
    rollout      rollout, mean_return   from a simulator and a policy to a log, or to returns
    gym          Gymnasium faces        registered by importing this package, if Gymnasium is installed

All have ``reset(n, seed)``, ``step(actions)``, ``candidates()`` and ``rollout(policy, n, seed)``.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from shpi.envs.registry import make, names
from shpi.errors import MissingExtraError

_HOME = {
    "FittedWorld": "shpi.envs.world",
    "HIV": "shpi.envs.hiv",
    "RecoGym": "shpi.envs.recogym",
    "SimpleController": "shpi.envs.synthetic_reference",
    "Storefront": "shpi.envs.storefront",
    "Synthetic": "shpi.envs.synthetic",
    "WorldModel": "shpi.envs.world",
    "kuairand_world": "shpi.envs.kuairand",
    "mean_return": "shpi.envs.rollout",
}

__all__ = [
    "HIV",
    "FittedWorld",
    "RecoGym",
    "SimpleController",
    "Storefront",
    "Synthetic",
    "WorldModel",
    "kuairand_world",
    "make",
    "mean_return",
    "names",
]

if TYPE_CHECKING:
    from shpi.envs.hiv import HIV
    from shpi.envs.kuairand import kuairand_world
    from shpi.envs.recogym import RecoGym
    from shpi.envs.rollout import mean_return
    from shpi.envs.storefront import Storefront
    from shpi.envs.synthetic import Synthetic
    from shpi.envs.synthetic_reference import SimpleController
    from shpi.envs.world import FittedWorld, WorldModel


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'shpi.envs' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)


with suppress(MissingExtraError):
    import_module("shpi.envs.gym")
