"""One feature per distinct context: exact where contexts take few values, however wide they are.

    phi_s(x) = 1[x = cell_s]            all zero for a context that was not seen when the map was fitted

A cell is found by a hash of the context's bits and then compared, so the result does not depend on the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shpi.errors import ConfigError
from shpi.features.base import as_matrix
from shpi.features.parts import freeze, saveable
from shpi.protocols import Float64Array, FloatArray, Int64Array


@dataclass(frozen=True, kw_only=True)
class Cells:
    """One cell per distinct context; more than ``at_most`` of them are an error."""

    at_most: int = 4096

    def fit(self, contexts: FloatArray) -> CellsMap:
        """Collect the distinct contexts."""
        cells = distinct(contexts, self.at_most)
        if cells is None:
            raise ConfigError(
                expected=f"at most {self.at_most} distinct contexts",
                found="more",
                where="Cells",
                remedy="use features that generalise, such as RandomFourier",
            )
        return CellsMap(cells=cells)


@saveable("features/cells")
@dataclass(frozen=True, kw_only=True, eq=False)
class CellsMap:
    """The fitted form of `Cells`."""

    cells: Float64Array  # [S, d], distinct
    width_in: int = field(init=False, repr=False)  # d
    width: int = field(init=False, repr=False)  # p = S

    def __post_init__(self) -> None:
        freeze(self, "cells", ndim=2)
        hashes = self._sorted[0]
        if not len(hashes) or (hashes[1:] == hashes[:-1]).any():
            raise ConfigError(expected="at least one cell, all of them distinct", found=f"{len(self.cells)}")
        object.__setattr__(self, "width_in", self.cells.shape[1])
        object.__setattr__(self, "width", len(self.cells))

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.uint64], Int64Array]:
        hashes = _hashes(self.cells)
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order.astype(np.int64)

    def index(self, contexts: FloatArray) -> Int64Array:
        """The cell of each context [n], or -1 for an unknown context."""
        x = as_matrix(contexts, self.width_in) + 0.0  # minus zero becomes zero
        hashes, order = self._sorted
        place = np.minimum(np.searchsorted(hashes, _hashes(x)), len(order) - 1)
        nearest = order[place]
        return np.where((self.cells[nearest] == x).all(axis=1), nearest, -1)

    def transform(self, contexts: FloatArray) -> Float64Array:
        """Indicators [n, p]."""
        cell = self.index(contexts)
        features = np.zeros((len(cell), self.width))
        known = np.flatnonzero(cell >= 0)
        features[known, cell[known]] = 1.0
        return features


def distinct(contexts: FloatArray, at_most: int) -> Float64Array | None:
    """The distinct contexts [S, d] in order of their first appearance; None if there are too many."""
    head = contexts[: 4 * at_most + 1]
    if len(head) < len(contexts) and distinct(head, at_most) is None:
        return None  # settles most logs at once
    x = as_matrix(contexts, not_empty=True) + 0.0
    _, first = np.unique(_hashes(x), return_index=True)  # collisions of 64-bit hashes are negligible
    return x[np.sort(first)] if len(first) <= at_most else None


def _hashes(x: Float64Array) -> NDArray[np.uint64]:
    """A hash of each row [n]: its bits, mixed, times odd random numbers, summed modulo 2^64."""
    factors = np.random.default_rng(0x5EED).integers(1, 2**63, size=x.shape[1], dtype=np.uint64) * 2 + 1
    words = np.ascontiguousarray(x).view(np.uint64)
    words = (words ^ (words >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    words ^= words >> np.uint64(29)
    total: NDArray[np.uint64] = (words * factors).sum(axis=1, dtype=np.uint64)
    return total
