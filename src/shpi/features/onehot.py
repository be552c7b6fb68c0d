"""One feature per state, for finite problems whose context holds the number of the state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi.errors import ConfigError, DataError
from shpi.features.base import as_matrix
from shpi.features.parts import saveable
from shpi.protocols import Float64Array, FloatArray, Int64Array


def state_index(contexts: FloatArray, column: int, n_states: int) -> Int64Array:
    """The state numbers [n] in a column of the contexts; anything but 0 .. n_states-1 is an error."""
    values = contexts[:, column]
    states = values.astype(np.int64)
    bad = (states != values) | (states < 0) | (states >= n_states)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(
            expected=f"a state number in 0..{n_states - 1}",
            found=str(values[row]),
            where=f"context column {column}, row {row}",
        )
    return states


@dataclass(frozen=True, kw_only=True)
class OneHot:
    """phi_s(x) = 1[x_column = s]. Without ``n_states`` the largest state of the contexts decides."""

    n_states: int | None = None
    column: int = 0

    def fit(self, contexts: FloatArray) -> OneHotMap:
        """Take the width, and the number of states where it was not given."""
        x = as_matrix(contexts, not_empty=True)
        if not 0 <= self.column < x.shape[1]:
            raise ConfigError(expected=f"a column in 0..{x.shape[1] - 1}", found=str(self.column))
        count = self.n_states if self.n_states is not None else int(x[:, self.column].max()) + 1
        fitted = OneHotMap(width_in=x.shape[1], n_states=count, column=self.column)
        state_index(x, self.column, count)
        return fitted


@saveable("features/one-hot")
@dataclass(frozen=True, kw_only=True, eq=False)
class OneHotMap:
    """The fitted form of `OneHot`."""

    width_in: int
    n_states: int
    column: int = 0

    def __post_init__(self) -> None:
        if self.n_states < 1:
            raise ConfigError(expected="at least one state", found=str(self.n_states), where="OneHot")

    @property
    def width(self) -> int:
        """p, the number of states."""
        return self.n_states

    def transform(self, contexts: FloatArray) -> Float64Array:
        """Indicators [n, p]."""
        x = as_matrix(contexts, self.width_in)
        features = np.zeros((len(x), self.n_states))
        features[np.arange(len(x)), state_index(x, self.column, self.n_states)] = 1.0
        return features
