"""Public logs as `LoggedData`, read from a folder that you name; see docs/datasets.md."""

from shpi.data.datasets.catalogue import load, names
from shpi.data.datasets.heartsteps import heartsteps
from shpi.data.datasets.kuairand import kuairand_random, kuairand_standard
from shpi.data.datasets.open_bandit import open_bandit

__all__ = ["heartsteps", "kuairand_random", "kuairand_standard", "load", "names", "open_bandit"]
