"""Modules that moved since version 0.1: their old names still import, and say where they are now.

One finder, asked last, knows the old names: ``import shpi.envs.hiv_ode`` gives `shpi.envs.hiv.ode` itself,
with a DeprecationWarning. A module that became a folder of the same name (`shpi.envs.hiv`) keeps its public
names. Single names, and what is gone for good, are in `shpi._gone`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from shpi._gone import ARGUMENTS, GONE, NAMES

LAST_VERSION = "0.4"  # the version from which on the old names are gone

# room: {old module: new module}, both below the room.
_BY_ROOM: dict[str, dict[str, str]] = {
    "shpi": {
        "layers": "_torch.layers",
        "memory": "_core.memory",
        "networks": "_torch.networks",
        "perceptron": "_torch.perceptron",
        "progress": "_core.progress",
        "threads": "_core.threads",
        "data.seal": "files.seal",
        "ope._names": "report.estimators",
        "ope.text": "report.terminal",
        "report.marks": "report.page",
        "data.softmax": "_core.softmax",
    },
    "shpi.cli": {
        "act": "verbs.act",
        "agents": "verbs.without_data.agents",
        "audit": "verbs.audit",
        "compare": "verbs.compare",
        "completion": "verbs.completion",
        "demo": "verbs.without_data.demo",
        "evaluate": "verbs.evaluate",
        "fit": "verbs.fit",
        "held_out": "_compare.held_out",
        "init": "verbs.init",
        "learn_job": "_compare.learn_job",
        "mix": "verbs.mix",
        "reading": "_shell.reading",
        "reproduce": "verbs.without_data.reproduce",
        "simulate": "verbs.without_data.simulate",
        "split": "verbs.split",
    },
    "shpi.data": {
        "assemble": "_read.assemble",
        "calibration": "_behaviour.calibration",
        "checks": "_log.checks",
        "clock": "_log.clock",
        "crossfit": "_behaviour.crossfit",
        "cut": "_log.cut",
        "encoding": "_read.encoding",
        "fill": "_read.fill",
        "frames": "_log.frames",
        "futures": "_log.futures",
        "guess": "_read.guess",
        "ledger": "_log.ledger",
        "missing": "_read.encoding",
        "order": "_read.order",
        "ragged": "_log.ragged",
        "read": "_read.read",
        "release": "_log.release",
        "slicing": "_log.slicing",
        "sources": "_read.sources",
        "times": "_read.times",
        "windows": "_log.windows",
    },
    "shpi.envs": {
        "hiv": "hiv.simulator",
        "hiv_compiled": "hiv.compiled",
        "hiv_ode": "hiv.ode",
        "hiv_taylor": "hiv.taylor",
        "kuairand": "kuairand.world",
        "recogym": "recogym.simulator",
        "recogym_ltr": "recogym.ltr",
        "recogym_release": "recogym.release",
        "recogym_replay": "recogym.replay",
        "recogym_users": "recogym.users",
        "recogym_world": "recogym.world",
        "synthetic": "synthetic.simulator",
        "synthetic_reference": "synthetic.reference",
        "synthetic_release": "synthetic.release",
        "world": "fitted.model",
        "world_check": "fitted.check",
        "world_counters": "kuairand.counters",
        "world_donors": "fitted.donors",
        "world_files": "fitted.files",
        "world_fit": "fitted.fit",
        "world_models": "fitted.outcome_models",
        "world_moves": "fitted.moves",
        "world_outcomes": "fitted.outcomes",
        "world_report": "fitted.report",
        "world_simulator": "fitted.simulator",
        "world_tables": "fitted.tables",
    },
    "shpi.experiments": {
        "advantages": "paper.advantages",
        "auto_k": "beyond.auto_k",
        "backshift": "paper.appendix.backshift",
        "backshift_hiv": "paper.appendix.backshift_hiv",
        "cells": "_run.cells",
        "compare": "_page.compare",
        "data_size": "beyond.data_size",
        "defaults": "beyond.defaults",
        "drift": "beyond.drift",
        "example": "paper.example",
        "experiment": "_run.experiment",
        "figures": "_page.figures",
        "hiv": "paper.hiv",
        "hybrid": "beyond.hybrid",
        "k_hiv": "paper.appendix.k_hiv",
        "k_synthetic": "paper.appendix.k_synthetic",
        "mse": "paper.mse",
        "online": "_run.online",
        "page": "_page.page",
        "private": "paper.private",
        "processes": "_run.processes",
        "recogym": "paper.recogym",
        "run": "_run.run",
        "runner": "_run.runner",
        "selection": "_run.selection",
        "settings": "_run.settings",
        "signals": "paper.signals",
        "stats": "_page.stats",
        "store": "_run.store",
        "synthetic": "paper.appendix.synthetic",
        "synthetic_large": "paper.appendix.synthetic_large",
        "topics": "_page.topics",
        "work": "_run.work",
        "worker": "_run.worker",
        "worlds": "_run.worlds",
    },
    "shpi.learners": {
        "_descent": "neural._descent",
        "_dqn": "neural._dqn",
        "_replay": "neural._replay",
        "bcq": "neural.bcq",
        "cb_mf": "neural.cb_mf",
        "constrained": "constrained.baseline",
        "constrained_shpi": "constrained.shpi",
        "cql": "neural.cql",
        "fitted_q": "constrained.fitted_q",
        "gain": "improved",
        "gym_world": "online.gym_world",
        "local_scale": "online._local_scale",
        "mbs": "constrained.mbs",
        "nn_ips": "neural.nn_ips",
        "on_log": "_shpi.on_log",
        "online": "online.shpi",
        "online_bandit": "online.bandit",
        "online_sarsa": "online.released_sarsa",
        "proximal": "_shpi.proximal",
        "readings": "_shpi.readings",
        "rounds": "online.rounds",
        "sarsa": "online.deep_sarsa",
        "spibb": "constrained.spibb",
        "steady": "online._steady",
    },
    "shpi.ope": {
        "backups": "models.backups",
        "baseline": "estimators.baseline",
        "censoring": "inference.censoring",
        "claims": "verdict.claims",
        "checks.balance": "checks.balance.joint_test",
        "checks.instruments": "checks.balance.instruments",
        "checks.looks": "checks.looks.file",
        "checks.residuals": "checks.balance.residuals",
        "checks.sequence": "checks.looks.sequence",
        "checks.user_values": "checks.looks.user_values",
        "diagnostics": "diagnostics.diagnose",
        "diagnostics_answers": "diagnostics.answers",
        "diagnostics_log": "diagnostics.log",
        "diagnostics_propensities": "diagnostics.propensities",
        "diagnostics_steps": "diagnostics.steps",
        "diagnostics_weights": "diagnostics.weights",
        "direct": "estimators.direct",
        "estimator": "estimators.base",
        "facts": "_log.facts",
        "importance": "estimators.importance",
        "intervals": "inference.intervals",
        "kstep": "estimators.kstep",
        "longer": "verdict.longer",
        "magic": "estimators.magic",
        "marginal": "estimators.marginal",
        "model": "models.linear",
        "oracle_fqe": "estimators.oracle_fqe",
        "part": "_log.chunk",
        "per_decision": "inference.per",
        "predictions": "models.predictions",
        "recipes": "models.recipes",
        "robust": "estimators.robust",
        "sessions": "_log.sessions",
        "slope": "estimators.slope",
        "steps": "inference.steps",
        "weighting": "inference.weighting",
    },
    "shpi.policies": {
        "bounded": "near_mu.bounded",
        "cloned": "near_mu.cloned",
        "likely": "near_mu.likely",
        "logistic": "near_mu.logistic",
        "support": "near_mu.support",
        "tilted": "near_mu.tilted",
    },
    "shpi.values": {
        "brief": "neural.brief",
        "choose": "_lstd.choose",
        "moments": "_lstd.moments",
        "network": "neural.network",
        "neural": "neural.descent",
    },
}

MOVED = {f"{room}.{old}": f"{room}.{new}" for room, names in _BY_ROOM.items() for old, new in names.items()}

_WITH_OLD_NAMES = {place.rpartition(".")[0] for place in (*NAMES, *GONE, *ARGUMENTS)}


def _warn(old: str, new: str) -> None:
    warnings.warn(
        f"{old} is now {new}; the old name goes in version {LAST_VERSION}", DeprecationWarning, stacklevel=3
    )


def _add_old_names(module: ModuleType) -> None:
    """Let a module answer for the names that it had in 0.1.

    What moved comes from its new place, with a warning. What is gone raises an ImportError, since
    ``from shpi.learners import NAME`` hides the words of an AttributeError.
    """
    own: Callable[[str], Any] | None = vars(module).get("__getattr__")

    def get(name: str) -> Any:
        place = f"{module.__name__}.{name}"
        if place in NAMES:
            _warn(place, NAMES[place])
            home, _, called = NAMES[place].rpartition(".")
            return getattr(import_module(home), called)
        if place in GONE:
            raise ImportError(f"{place} is gone since 0.2: {GONE[place]}", name=module.__name__)
        if own is not None:
            return own(name)
        raise AttributeError(f"module '{module.__name__}' has no attribute '{name}'", name=name)

    vars(module)["__getattr__"] = get


def _add_old_arguments(module: ModuleType) -> None:
    """Let functions of a module, and constructors of its classes, take arguments by their names of 0.1."""
    for place, names in ARGUMENTS.items():
        home, _, called = place.rpartition(".")
        if home == module.__name__:
            thing = getattr(module, called)
            if isinstance(thing, type):
                thing.__init__ = _renamed(thing.__init__, names)  # type: ignore[misc]
            else:
                setattr(module, called, _renamed(thing, names))


def _renamed(function: Callable[..., Any], names: Mapping[str, str]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        for old in named.keys() & names.keys():
            _warn(f"{old}= of {function.__qualname__}", f"{names[old]}=")
            named[names[old]] = named.pop(old)
        return function(*arguments, **named)

    return call


class _OldNames(MetaPathFinder):
    """Asked first, for modules that had other names once.

    A ``__getattr__`` in the modules themselves would let mypy believe in any name.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname in _WITH_OLD_NAMES else None
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_add(module: ModuleType) -> None:
                run(module)
                _add_old_names(module)
                _add_old_arguments(module)

            spec.loader.exec_module = run_and_add  # type: ignore[method-assign]
        return spec


class _MovedModules(MetaPathFinder, Loader):
    """Finds modules under their old names, and puts the modules themselves in their place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in GONE:
            raise ModuleNotFoundError(f"{fullname} is gone since 0.2: {GONE[fullname]}", name=fullname)
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        _warn(old, MOVED[old])
        sys.modules[old] = import_module(MOVED[old])  # importlib returns what stands here


def install() -> None:
    """Let the old names be imported; moved modules are asked for last: modules that exist come first."""
    if not any(type(finder).__name__ == _MovedModules.__name__ for finder in sys.meta_path):
        sys.meta_path.append(_MovedModules())
        sys.meta_path.insert(0, _OldNames())
