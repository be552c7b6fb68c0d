"""Learners by name, imported when they are asked for.

    learner = make("bandit", target="dr", seed=3)
    policy = learner.fit(logs)                          make("deep-sarsa", episodes=500).fit(simulator)

A name stands for a constructor with some options. If an extra is not installed, or this version lacks a
module, `make` raises an error; `missing` checks this beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

from shpi.errors import ConfigError, MissingExtraError
from shpi.learners.base import Learner, OnlineLearner

Kind = Literal["offline", "online"]

_PACKAGES = {"neural": "torch", "vw": "vowpalwabbit", "gbdt": "lightgbm"}  # package that an extra installs


class Entry(NamedTuple):
    """The module of a learner, and its kind."""

    module: str  # below shpi.learners
    constructor: str  # a class, or a class and one of its class methods
    about: str
    kind: Kind = "offline"
    extra: str | None = None
    presets: Mapping[str, Any] = {}
    budget: str | None = None  # online: the option that says how many users are met


_LEARNERS = {
    "shpi": Entry("offline", "OfflineSHPI", "short-horizon policy improvement, our defaults"),
    "best": Entry("best", "Best", "SHPI, a bandit and BCQ as candidates of one test"),
    "shpi-paper": Entry(
        "offline", "OfflineSHPI.paper", "Algorithm 2 of the paper, line by line", extra="neural"
    ),
    "shpi-repaired": Entry(
        "offline", "OfflineSHPI.repaired", "Algorithm 2 with V by TD and weights kept off V", extra="neural"
    ),
    "shpi-released": Entry(
        "offline", "OfflineSHPI.released", "what the authors' released code does", extra="neural"
    ),
    "bandit": Entry("bandit", "ContextualBandit", "contextual bandit: ridge, direct method"),
    "bandit-mtr": Entry(
        "bandit", "ContextualBandit", "… with inverse propensities", presets={"target": "mtr"}
    ),
    "bandit-dr": Entry("bandit", "ContextualBandit", "… doubly robust", presets={"target": "dr"}),
    "bandit-gbdt": Entry("bandit", "ContextualBandit.boosted", "… with boosted trees", extra="gbdt"),
    "bandit-vw": Entry("bandit", "ContextualBandit.paper", "the paper's: VW with coin and mtr", extra="vw"),
    "session-rl": Entry("session_rl", "SessionRL", "SHPI with V = 0 at the end of a session"),
    "a-mu": Entry("named", "PolicyGradientAdvantage", "SHPI with k = 1: policy gradient"),
    "a-pi": Entry("named", "ConservativePolicyIteration", "SHPI with k = T: conservative policy iteration"),
    "bcq": Entry("neural.bcq", "DiscreteBCQ", "discrete batch-constrained Q-learning", extra="neural"),
    "cql": Entry("neural.cql", "DiscreteCQL", "discrete conservative Q-learning", extra="neural"),
    "cb-mf": Entry("neural.cb_mf", "CBMF", "bandit on a neural matrix factorisation", extra="neural"),
    "nn-ips": Entry("neural.nn_ips", "NNIPS", "clipped IPS with a neural network", extra="neural"),
    "spibb": Entry("constrained.spibb", "SPIBB", "safe policy improvement with baseline bootstrapping"),
    "mbs": Entry("constrained.mbs", "MBS", "marginalised behaviour support"),
    "spibb-shpi": Entry("constrained.shpi", "ConstrainedSHPI", "SHPI's advantages under SPIBB's constraint"),
    "mbs-shpi": Entry("constrained.shpi", "ConstrainedSHPI.mbs", "SHPI's advantages under MBS's constraint"),
    "clone": Entry("cloning", "BehaviourCloning", "the logging policy, recovered from the log"),
    "deep-sarsa": Entry(
        "online.deep_sarsa",
        "DeepSARSA",
        "online RL: deep SARSA",
        "online",
        "neural",
        {"episodes": 1000},
        "episodes",
    ),
    "online-bandit": Entry(
        "online.bandit", "OnlineBandit", "online bandit: epsilon-greedy ridge", "online", budget="users"
    ),
    "online-bandit-vw": Entry(
        "online.bandit", "OnlineBandit.paper", "the paper's: VW's exploration", "online", "vw", budget="users"
    ),
    "online-shpi": Entry(
        "online.shpi", "OnlineSHPI", "online SHPI, Algorithm 1", "online", budget="episodes"
    ),
}


def names(kind: Kind | None = None) -> tuple[str, ...]:
    """The names that `make` knows, of one kind or of both."""
    return tuple(name for name, entry in _LEARNERS.items() if kind is None or entry.kind == kind)


def entry(name: str) -> Entry:
    """The entry of a name, without importing its module."""
    if name not in _LEARNERS:
        raise ConfigError(expected=f"the name of a learner, one of {', '.join(_LEARNERS)}", found=repr(name))
    return _LEARNERS[name]


def missing(name: str) -> str | None:
    """Why a learner cannot be made here, in a few words; None if it can."""
    learner = entry(name)
    if find_spec(f"shpi.learners.{learner.module}") is None:
        return "not in this version of shpi"
    if learner.extra is not None and find_spec(_PACKAGES[learner.extra]) is None:
        return f"needs the extra '{learner.extra}': pip install 'shpi[{learner.extra}]'"
    return None


def parameters(name: str) -> tuple[str, ...]:
    """The options that a learner takes."""
    cls = _class(name)
    return tuple(item.name for item in fields(cls)) if is_dataclass(cls) else ()


def make(name: str, **options: Any) -> Learner | OnlineLearner:
    """The learner of that name. ``options`` are those of its class; "oracle" and "value" may be words."""
    known = parameters(name)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigError(expected=f"options of '{name}' among {', '.join(known)}", found=", ".join(unknown))
    constructor: Any = _class(name)
    for attribute in entry(name).constructor.split(".")[1:]:
        constructor = getattr(constructor, attribute)
    try:
        learner: Learner | OnlineLearner = constructor(**{**entry(name).presets, **options})
    except TypeError as error:
        raise ConfigError(expected=f"options of '{name}' of the right types", found=str(error)) from None
    return learner


def _class(name: str) -> type[Any]:
    learner = entry(name)
    if learner.extra is not None and find_spec(_PACKAGES[learner.extra]) is None:
        raise MissingExtraError(_PACKAGES[learner.extra], learner.extra)
    try:
        module = import_module(f"shpi.learners.{learner.module}")
    except ModuleNotFoundError as error:
        if error.name != f"shpi.learners.{learner.module}":
            raise
        there = ", ".join(known for known in names() if missing(known) is None)
        raise ConfigError(
            expected=f"a learner that this version of shpi has: {there}", found=repr(name)
        ) from None
    cls: type[Any] = getattr(module, learner.constructor.split(".")[0])
    return cls
