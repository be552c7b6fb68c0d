"""Modules that moved since version 0.1: their old names still import, and say where they are now.

One finder, asked last, knows the old names: ``import shpi.envs.hiv_ode`` gives `shpi.envs.hiv.ode` itself,
with a DeprecationWarning. A module that became a folder of the same name (`shpi.envs.hiv`) keeps its public
names. What is gone for good says what took its place.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

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
        "missing": "_read.missing",
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

# Modules, and names of rooms, that are gone since version 0.2, and what took their place.
GONE = {
    "shpi.learners.HeldOutChoice": "shpi.learners.Best chooses among learners",
    "shpi.learners.evidence": "OfflineSHPI tests its candidates itself; policy.trials has what the test said",
    "shpi.learners.held_out": "shpi.learners.Best chooses among learners",
    "shpi.learners.horizon": "OfflineSHPI tests several k as candidates; OfflineSHPI(k=...) takes one",
    "shpi.learners.shape": "OfflineSHPI tests several shapes of f; OfflineSHPI(oracle=...) takes one",
    "shpi.learners.sharper": "shpi.policies.Tilted goes from the logging policy to greedy",
    "shpi.ope.checks.thinned": "Problem.sample draws users by their hash (shpi.ope.Problem)",
}


def missing(module: str, name: str) -> Exception:
    """The error for a name that a module does not have. If it had it once, it says what took its place.

    Then it is an ImportError: ``from shpi.learners import NAME`` would hide the words of an AttributeError.
    """
    place = f"{module}.{name}"
    if place in GONE:
        return ImportError(f"{place} is gone since 0.2: {GONE[place]}", name=module)
    return AttributeError(f"module '{module}' has no attribute '{name}'", name=name)


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
        warnings.warn(
            f"{old} is now {MOVED[old]}; the old name goes in version {LAST_VERSION}",
            DeprecationWarning,
            stacklevel=2,
        )
        sys.modules[old] = import_module(MOVED[old])  # importlib returns what stands here


def install() -> None:
    """Let the old names be imported; asked last, so that modules that exist come first."""
    if not any(type(finder).__name__ == _MovedModules.__name__ for finder in sys.meta_path):
        sys.meta_path.append(_MovedModules())
