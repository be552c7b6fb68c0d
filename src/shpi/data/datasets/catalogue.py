"""The public logs by name, for the command line: ``shpi audit kuairand-random --data FOLDER``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from shpi.data.datasets.heartsteps import heartsteps
from shpi.data.datasets.kuairand import kuairand_random, kuairand_standard
from shpi.data.datasets.open_bandit import open_bandit
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError

_CATALOGUE: dict[str, Callable[[str | Path | None], LoggedData]] = {
    "kuairand-random": kuairand_random,
    "kuairand-standard": kuairand_standard,
    "heartsteps": heartsteps,
    **{
        f"open-bandit-{campaign}-{policy}": partial(open_bandit, campaign=campaign, policy=policy)
        for campaign in ("all", "men", "women")
        for policy in ("random", "bts")
    },
}


def names() -> tuple[str, ...]:
    """The names that `load` knows."""
    return tuple(_CATALOGUE)


def load(name: str, folder: str | Path | None = None) -> LoggedData:
    """A public log with its loader's defaults, from a folder or from the one that SHPI_DATA names."""
    if name not in _CATALOGUE:
        raise ConfigError(expected=f"one of {', '.join(_CATALOGUE)}", found=repr(name))
    return _CATALOGUE[name](folder)
