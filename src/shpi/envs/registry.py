"""Simulators by name, imported when they are needed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from shpi.errors import ConfigError
from shpi.protocols import Simulator


class World(NamedTuple):
    """The module of a simulator, and the preset parameters of its name."""

    module: str
    attribute: str
    about: str
    presets: dict[str, Any]


_WORLDS = {
    "synthetic": World(
        "shpi.envs.synthetic.simulator",
        "Synthetic",
        "the paper's synthetic task, d = 2, 10 actions, T = 150",
        {},
    ),
    "synthetic-large": World(
        "shpi.envs.synthetic.simulator",
        "Synthetic",
        "the synthetic task at d = 100 with 300 actions",
        {"d": 100, "n_actions": 300},
    ),
    "storefront": World(
        "shpi.envs.storefront", "Storefront", "the shop of the paper's introduction, with exact values", {}
    ),
    "hiv": World(
        "shpi.envs.hiv.simulator", "HIV", "treatment of HIV patients, 6 dimensions, 4 treatments, T = 200", {}
    ),
    "recogym": World(
        "shpi.envs.recogym.simulator", "RecoGym", "browsing and recommendations, 100 products, T = 200", {}
    ),
    "recogym-v0": World(
        "shpi.envs.recogym.simulator",
        "RecoGym",
        "the older dynamics of RecoGym, with clusters of products",
        {"version": 0, "reward": "click"},
    ),
    "kuairand": World(
        "shpi.envs.kuairand.world",
        "kuairand_world",
        "a short-video app fitted to KuaiRand's logs, 112 actions; needs its files (folder or SHPI_DATA)",
        {},
    ),
}


def names() -> tuple[str, ...]:
    """The names that `make` knows."""
    return tuple(_WORLDS)


def about(name: str) -> str:
    """One line about a simulator."""
    return _find(name).about


def make(name: str, **params: Any) -> Simulator:
    """The simulator of that name. ``params`` are those of its class, e.g. ``make("synthetic", tau=5)``."""
    known = parameters(name)
    unknown = sorted(set(params) - set(known))
    if unknown:
        raise ConfigError(
            expected=f"parameters of '{name}' among {', '.join(known)}", found=", ".join(unknown)
        )
    return _class(name)(**{**_find(name).presets, **params})


def parameters(name: str) -> dict[str, Any]:
    """The parameters of a simulator and their defaults."""
    signature = inspect.signature(_class(name))
    defaults = {key: parameter.default for key, parameter in signature.parameters.items()}
    return defaults | _find(name).presets


def _class(name: str) -> Callable[..., Simulator]:
    world = _find(name)
    constructor: Callable[..., Simulator] = getattr(import_module(world.module), world.attribute)
    return constructor


def _find(name: str) -> World:
    if name not in _WORLDS:
        raise ConfigError(expected=f"the name of a simulator, one of {', '.join(_WORLDS)}", found=repr(name))
    return _WORLDS[name]
