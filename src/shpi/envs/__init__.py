"""Simulators: many users advance together as arrays, and user i depends on (seed, i) alone.

    synthetic    Synthetic              slow contexts, delayed effects (the paper's appendix)
    storefront   Storefront             the introduction's example, with exact values
    hiv          HIV                    treatment of HIV patients
    recogym      RecoGym                browsing and recommendations
    fitted       WorldModel             a simulator fitted to any log
    kuairand     kuairand_world         the world of KuaiRand, a short-video app
    registry     make, names            simulators by name
    rollout      rollout, mean_return   run a policy in a simulator: a log, or just the returns
    gym          Gymnasium adapters     registered by importing this package, if Gymnasium is installed

All have ``reset(n, seed)``, ``step(actions)``, ``candidates()`` and ``rollout(policy, n, seed)``.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from shpi._core.lazy import lazy_names
from shpi.envs.registry import make, names
from shpi.errors import MissingExtraError

_HOME = {
    "FittedWorld": "shpi.envs.fitted.model",
    "HIV": "shpi.envs.hiv.simulator",
    "RecoGym": "shpi.envs.recogym.simulator",
    "SimpleController": "shpi.envs.synthetic.reference",
    "Storefront": "shpi.envs.storefront",
    "Synthetic": "shpi.envs.synthetic.simulator",
    "WorldModel": "shpi.envs.fitted.model",
    "kuairand_world": "shpi.envs.kuairand.world",
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
    from shpi.envs.fitted.model import FittedWorld, WorldModel
    from shpi.envs.hiv.simulator import HIV
    from shpi.envs.kuairand.world import kuairand_world
    from shpi.envs.recogym.simulator import RecoGym
    from shpi.envs.rollout import mean_return
    from shpi.envs.storefront import Storefront
    from shpi.envs.synthetic.reference import SimpleController
    from shpi.envs.synthetic.simulator import Synthetic


__getattr__, __dir__ = lazy_names(
    __name__, {"make": "shpi.envs.registry", "names": "shpi.envs.registry", **_HOME}
)


with suppress(MissingExtraError):
    import_module("shpi.envs.gym")
