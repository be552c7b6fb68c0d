"""No features at all: every context looks alike, and a regression on it is a mean per action."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi.features.base import as_matrix
from shpi.features.parts import saveable
from shpi.protocols import Float64Array, FloatArray


@dataclass(frozen=True, kw_only=True)
class Constant:
    """phi(x) = (1)."""

    def fit(self, contexts: FloatArray) -> ConstantMap:
        """Only the width is taken from the contexts."""
        return ConstantMap(width_in=as_matrix(contexts).shape[1])


@saveable("features/constant")
@dataclass(frozen=True, kw_only=True, eq=False)
class ConstantMap:
    """The fitted form of `Constant`."""

    width_in: int

    @property
    def intercept(self) -> bool:
        """The constant is one."""
        return True

    @property
    def width(self) -> int:
        """One feature."""
        return 1

    def transform(self, contexts: FloatArray) -> Float64Array:
        """Ones, [n, 1]."""
        return np.ones((len(as_matrix(contexts, self.width_in)), 1))
