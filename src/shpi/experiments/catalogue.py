"""The experiments by name, in the order of the page; each is imported when it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from shpi.errors import ConfigError
from shpi.experiments._run.experiment import Experiment

_MODULES = {
    "example": "paper.example",
    "recogym": "paper.recogym",
    "signals": "paper.signals",
    "private": "paper.private",
    "advantages": "paper.advantages",
    "mse": "paper.mse",
    "hiv": "paper.hiv",
    "synthetic": "paper.appendix.synthetic",
    "synthetic-large": "paper.appendix.synthetic_large",
    "release": "paper.release",
    "backshift": "paper.appendix.backshift",
    "backshift-hiv": "paper.appendix.backshift_hiv",
    "k-synthetic": "paper.appendix.k_synthetic",
    "k-hiv": "paper.appendix.k_hiv",
    "defaults": "beyond.defaults",
    "auto-k": "beyond.auto_k",
    "data-size": "beyond.data_size",
    "hybrid": "beyond.hybrid",
    "drift": "beyond.drift",
}


def names() -> tuple[str, ...]:
    """All names, in the order of the page."""
    return tuple(_MODULES)


def find(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in _MODULES:
        raise ConfigError(expected=f"an experiment among {', '.join(_MODULES)}, or all", found=repr(name))
    experiment: Experiment = import_module(f"shpi.experiments.{_MODULES[name]}").EXPERIMENT
    return experiment


def chosen(wanted: Sequence[str]) -> tuple[Experiment, ...]:
    """The experiments of these names ("all" for all), in the order of the page."""
    for name in wanted:
        if name != "all":
            find(name)
    return tuple(find(name) for name in _MODULES if "all" in wanted or name in wanted)
