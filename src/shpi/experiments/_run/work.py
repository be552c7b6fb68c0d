"""The work of a cell: learn a policy from a log, test it on new users. Other kinds of work have own files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

from shpi.data._log.release import ReleasedRows
from shpi.data.logged import LoggedData
from shpi.data.question import terminate_unknown_endings
from shpi.errors import ConfigError
from shpi.experiments._run import worlds
from shpi.experiments._run.cells import Cell, Outcome
from shpi.learners import BehaviourCloning, ContextualBandit, OfflineSHPI, registry
from shpi.learners._shpi.shapes import few_contexts
from shpi.learners.base import learned_from
from shpi.protocols import Policy

Work = Callable[[Cell], Outcome]

# Modules of other kinds of work by name; each has a function `work`.
_ELSEWHERE = {
    "exact": "paper.example",
    "mse": "paper.mse",
    "release": "paper.release",
    "online": "_run.online",
}


def run(cell: Cell) -> Outcome:
    """Do the work of a cell."""
    return find(cell.work)(cell)


def find(name: str) -> Work:
    """Find the function of a kind of work."""
    if name in _HERE:
        return _HERE[name]
    if name not in _ELSEWHERE:
        raise ConfigError(expected=f"work among {', '.join((*_HERE, *_ELSEWHERE))}", found=repr(name))
    work: Work = import_module(f"shpi.experiments.{_ELSEWHERE[name]}").work
    return work


def logging(cell: Cell) -> Outcome:
    """Test the logging policy."""
    mu = worlds.logging_policy(cell.log.world, cell.log.params, cell.log.epsilon)
    return Outcome(values=try_policy(cell, mu))


def learn(cell: Cell) -> Outcome:
    """Fit the learner of a cell to its log, and test the policy."""
    policy, seconds = fit_cached(cell, worlds.simulate(cell.log))
    values = try_policy(cell, policy)
    return Outcome(values=values, seconds=seconds)


def fit_cached(cell: Cell, logs: LoggedData) -> tuple[Policy, float]:
    """The policy, and the CPU seconds that it takes to learn it."""
    if cell.learner is None:
        raise ConfigError(expected="the name of a learner", found="none", where=cell.method)
    return worlds.cached(fit_key(cell), lambda: _fit(cell, logs))


def _fit(cell: Cell, logs: LoggedData) -> tuple[Policy, float]:
    began = time.process_time()
    learner, saved = with_shared_parts(make_learner(cell), cell, logs)
    policy: Policy = learner.fit(logs)
    return policy, time.process_time() - began + sum(saved)


def fit_key(cell: Cell) -> str:
    """A key that is equal for cells that fit the same learner to the same log."""
    return json.dumps([cell.log.key, cell.learner, dict(cell.options), cell.k, cell.Lambda], sort_keys=True)


def make_learner(cell: Cell) -> Any:
    """The learner of a cell, with its options, its k and Lambda, and the seed of its log."""
    assert cell.learner is not None
    parameters = registry.parameters(cell.learner)
    if cell.Lambda is not None and "proximal" not in parameters:
        raise ConfigError(expected="a learner with a proximal penalty", found=cell.learner)
    options: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in cell.options.items()
    }
    steps = options.pop("value_steps", None)
    if options.pop("rewards", None) == "level":  # the release's first policy: r = Y
        options["view"] = ReleasedRows(rewards="level")
    extra = {"seed": cell.log.seed, "progress": False, "k": cell.k, "proximal": cell.Lambda}
    options |= {
        key: value
        for key, value in extra.items()
        if key in parameters and key not in options and value is not None
    }
    if cell.Lambda is not None and "tested" in parameters:
        options["tested"] = False  # the penalty belongs to Algorithm 2, which does not test its steps
    learner: Any = registry.make(cell.learner, **options)
    return learner if steps is None else replace(learner, value=replace(learner.value, steps=steps))


def with_shared_parts(learner: Any, cell: Cell, logs: LoggedData) -> tuple[Any, list[float]]:
    """The learner, with V and the clone of mu fitted once for all cells of the log.

    The second value lists the CPU seconds that were saved this way, to be added to the reported time.
    """
    saved: list[float] = []
    if isinstance(learner, OfflineSHPI) and learner.value is not None:
        learner = replace(learner, value=worlds.CachedValue(learner.value, cell.log, saved))
    if _clones(learner, logs):
        cloning = BehaviourCloning(seed=learner.seed)
        mu = worlds.cached_fit(f"clone {cloning!r}", lambda: cloning.fit(logs), saved)
        learner = replace(learner, behaviour=mu)
    return learner, saved


def _clones(learner: Any, logs: LoggedData) -> bool:
    """Whether the learner clones mu by a fit on the whole log: not on a sample of users, nor by counting."""
    if isinstance(learner, ContextualBandit):
        return learner.behaviour is None and learner.support is not None
    if not isinstance(learner, OfflineSHPI) or not learner.tested:
        return False
    return (
        learner.behaviour is None
        and learner.view is None
        and learned_from(terminate_unknown_endings(logs), seed=learner.seed) is logs
        and few_contexts(logs) is None
    )


def try_policy(cell: Cell, policy: Policy) -> dict[str, float]:
    """Test a policy on new users: values by metric."""
    params = {**cell.log.params, **cell.test}
    return worlds.score(cell.log.world, params, policy, cell.rollouts, cell.log.seed)


_HERE: dict[str, Work] = {"learn": learn, "logging": logging}
