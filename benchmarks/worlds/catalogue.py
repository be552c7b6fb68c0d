"""The worlds by name: those in which there is something to gain, cheap ones first, and the null kinds."""

from __future__ import annotations

from benchmarks.worlds.base import World
from benchmarks.worlds.families import FamilyWorld
from benchmarks.worlds.nulls import NULL_WORLDS
from benchmarks.worlds.shop import Shop
from benchmarks.worlds.simulated import SimulatedWorld
from benchmarks.worlds.wide import WideWorld
from shpi.experiments._run.settings import USERS
from shpi.experiments.paper import private

KUAIRAND_USERS = 40_000  # with 2,000 the effects of actions are 3 % of the noise


def _families(users: int) -> tuple[World, ...]:
    return (
        FamilyWorld(name=f"finite-a-{users}", users=users, family="a"),
        FamilyWorld(name=f"finite-b-{users}", users=users, family="b", gamma=0.95),
        FamilyWorld(name=f"finite-c-{users}", users=users, family="c"),
        FamilyWorld(name=f"finite-d-{users}", users=users, family="d"),
    )


def _simulated(name: str, simulator: str, epsilon: float, new_users: int = 500) -> World:
    return SimulatedWorld(
        name=name, simulator=simulator, epsilon=epsilon, users=USERS[simulator], new_users=new_users
    )


LOGS: tuple[World, ...] = (
    *_families(200),
    Shop(name="storefront-uniform", users=USERS["storefront"], epsilon=1.0),
    Shop(name="storefront-0.3", users=USERS["storefront"], epsilon=0.3),
    *_families(5_000),
    WideWorld(name="wide-300", users=300, gamma=0.95),
    WideWorld(name="wide-3000", users=3_000, gamma=0.95),
    _simulated("synthetic-0.3", "synthetic", 0.3),
    _simulated("synthetic-0", "synthetic", 0.0),
    _simulated("synthetic-1", "synthetic", 1.0),
    _simulated("recogym-0.3", "recogym", 0.3, new_users=2_000),
    SimulatedWorld(
        name="kuairand-0.3",
        simulator="kuairand",
        epsilon=private.EPSILON,
        params=private.params(private.ASSUMED),
        users=KUAIRAND_USERS,
        new_users=3_000,
    ),
    _simulated("hiv-0.3", "hiv", 0.3),
    _simulated("hiv-1", "hiv", 1.0),
    _simulated("synthetic-large-0.3", "synthetic-large", 0.3),
)
NULLS: tuple[World, ...] = NULL_WORLDS
_ALL = {world.name: world for world in (*LOGS, *NULLS)}


def names() -> tuple[str, ...]:
    """Of all worlds."""
    return tuple(_ALL)


def by_name(name: str) -> World:
    """The world of that name, e.g. ``hiv-0.3``; a size other than its own with ``.with_users(300)``."""
    if name not in _ALL:
        raise ValueError(f"unknown world {name!r}; known: {', '.join(_ALL)}")
    return _ALL[name]
