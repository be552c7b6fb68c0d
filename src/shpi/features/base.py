"""The two interfaces of this package: fitting a recipe to contexts gives a feature map."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from shpi.errors import DataError
from shpi.protocols import Float64Array, FloatArray


@runtime_checkable
class FeatureMap(Protocol):
    """A fitted map phi from contexts to features. It never changes."""

    @property
    def width_in(self) -> int:
        """d, the number of context dimensions."""
        ...

    @property
    def width(self) -> int:
        """p, the number of features."""
        ...

    def transform(self, contexts: FloatArray) -> Float64Array:
        """phi(x): contexts [n, d] to features [n, p]. Row i depends on context i alone."""
        ...


@runtime_checkable
class Recipe(Protocol):
    """A configuration of features, before any data was seen."""

    def fit(self, contexts: FloatArray) -> FeatureMap:
        """The feature map for contexts that look like these [n, d]."""
        ...


def fit_features(features: Recipe | FeatureMap, contexts: FloatArray) -> FeatureMap:
    """Fit a recipe; return an already fitted map after a check of its width."""
    if isinstance(features, FeatureMap):
        as_matrix(contexts, features.width_in)
        return features
    return features.fit(contexts)


def check_contexts(contexts: ArrayLike, width: int | None = None) -> FloatArray:
    """Contexts as a float matrix [n, d], checked: two axes, ``width`` columns, finite numbers."""
    x = np.asarray(contexts)
    if x.dtype.kind not in "fiub":
        raise DataError(expected="numeric contexts", found=f"dtype {x.dtype}")
    if x.ndim != 2 or (width is not None and x.shape[1] != width):
        raise DataError(
            expected=f"contexts of shape [n, {'d' if width is None else width}]",
            found=f"shape {x.shape}",
            remedy="pass one row per decision; a single context needs shape [1, d]" if x.ndim == 1 else "",
        )
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        fine = bool(np.isfinite(np.vdot(x, x)))  # one fast pass; squares that overflow are checked again
    bad = np.zeros(0, dtype=bool) if fine else ~np.isfinite(x)
    if bad.any():
        row, column = (int(index[0]) for index in np.nonzero(bad))
        raise DataError(
            expected="finite contexts", found=str(x[row, column]), where=f"row {row}, column {column}"
        )
    return x


def as_matrix(contexts: ArrayLike, width: int | None = None, *, not_empty: bool = False) -> Float64Array:
    """Contexts [n, d] checked as by ``check_contexts``, in float64; ``not_empty`` if they are fitted on."""
    x = check_contexts(contexts, width).astype(np.float64, copy=False)
    if not_empty and not len(x):
        raise DataError(expected="at least one context to fit features on", found="none")
    return x
