"""Values that are not estimated: a constant, and a function that the user supplies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features.base import check_contexts
from shpi.features.parts import saveable
from shpi.protocols import Float64Array, FloatArray
from shpi.values.base import checked_values


@saveable("values/constant")
@dataclass(frozen=True)
class Constant:
    """V(x) = value. `Constant(0.0)` is no bonus at all: session-based RL. It is its own fitted form."""

    value: float = 0.0

    def __post_init__(self) -> None:
        if not np.isfinite(self.value):
            raise ConfigError(expected="a finite constant", found=str(self.value))

    def fit(self, logs: LoggedData, *, gamma: float, seed: int) -> Constant:
        """Nothing to estimate."""
        del logs, gamma, seed
        return self

    def __call__(self, contexts: FloatArray) -> Float64Array:
        """The constant, [n]."""
        return np.full(len(check_contexts(contexts)), float(self.value))


@dataclass(frozen=True, eq=False)
class Given:
    """A pre-trained V, as any function from contexts [n, d] to values [n]. It is its own fitted form.

    A NaN or an infinity that it returns is an error that names the row. It cannot be saved; save the function
    itself if it is made of shpi's own parts.
    """

    function: Callable[[FloatArray], ArrayLike]

    def fit(self, logs: LoggedData, *, gamma: float, seed: int) -> Given:
        """Nothing to estimate."""
        del logs, gamma, seed
        return self

    def __call__(self, contexts: FloatArray) -> Float64Array:
        """The function's values, checked, [n]; it gets the contexts read-only."""
        view = np.asarray(check_contexts(contexts)).view()
        view.setflags(write=False)
        return checked_values(self.function(view), len(view), "row")
