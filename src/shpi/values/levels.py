"""Values of user-level features only: the paper's session-initiation rate c(x_u)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi.data.logged import LoggedData
from shpi.data.schema import Level
from shpi.errors import ConfigError
from shpi.features import Chain, FeatureMap, Recipe
from shpi.features.base import as_matrix
from shpi.features.parts import freeze, saveable
from shpi.protocols import Float64Array, FloatArray, Int64Array


@saveable("values/select")
@dataclass(frozen=True, kw_only=True, eq=False)
class Select:
    """phi(x) = some columns of x."""

    width_in: int
    columns: Int64Array  # [p]

    def __post_init__(self) -> None:
        freeze(self, "columns", ndim=1, dtype=np.int64)
        if not len(self.columns) or self.columns.min() < 0 or self.columns.max() >= self.width_in:
            raise ConfigError(expected=f"columns in 0..{self.width_in - 1}", found=str(self.columns))

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.columns)

    def transform(self, contexts: FloatArray) -> Float64Array:
        """The columns, [n, p]."""
        return as_matrix(contexts, self.width_in)[:, self.columns]

    def then(self, features: Recipe | FeatureMap) -> Chain:
        """A chain that feeds these columns into other features."""
        return Chain((self, features))


def on_level(logs: LoggedData, level: Level) -> Select:
    """The dimensions of one level of the log's contexts."""
    columns = logs.schema.level_dimensions(level)
    if not len(columns):
        raise ConfigError(
            expected=f"context columns of level '{level}'",
            found="none in this log's schema",
            remedy="declare the level of the columns when reading the log, or leave out level=",
        )
    return Select(width_in=logs.schema.width, columns=columns)
