"""What a context is made of, and how its columns become numbers: x = [x_s, x_u, x_a] of the paper.

Numeric and boolean columns become one dimension each. A categorical column becomes one dimension per known
category plus one for everything else, so that a category never seen in the log has a place at prediction
time. Missing values follow the policy written beside the feature, never a silent default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from shpi.errors import ColumnError, ConfigError, DataError
from shpi.protocols import Float32Array, Int64Array

Kind = Literal["numeric", "boolean", "categorical"]
Level = Literal["session", "user", "action"]
MissingPolicy = Literal["error", "drop", "mean", "zero", "indicator"]

OTHER = "<other>"  # category of all values that are not in `Feature.categories`
MISSING = "<missing>"  # category of missing values under the policy "indicator"


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One context column: its kind, its level and what a missing value means."""

    name: str
    kind: Kind = "numeric"
    level: Level = "session"
    missing: MissingPolicy = "error"
    fill: float = 0.0  # replaces a missing number under "mean", "zero" and "indicator"
    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for value, allowed, label in (
            (self.kind, get_args(Kind), "kind"),
            (self.level, get_args(Level), "level"),
            (self.missing, get_args(MissingPolicy), "missing"),
        ):
            if value not in allowed:
                raise ConfigError(
                    expected=f"{label} to be one of {', '.join(allowed)}",
                    found=repr(value),
                    where=f"context column '{self.name}'",
                )

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The names of the encoded dimensions."""
        if self.kind == "categorical":
            extra = (f"{self.name}={MISSING}",) if self.missing == "indicator" else ()
            known = tuple(f"{self.name}={category}" for category in self.categories)
            return (*known, f"{self.name}={OTHER}", *extra)
        return (self.name, f"{self.name}={MISSING}") if self.missing == "indicator" else (self.name,)

    def expressions(self, dtype: pl.DataType | None = None) -> list[pl.Expr]:
        """Polars expressions for the encoded dimensions, in the order of ``dimensions``.

        Args:
            dtype: dtype of the column; in a categorical column of floats, NaN counts as missing.
        """
        column = pl.col(self.name)
        if self.kind == "categorical":
            known = column.fill_nan(None) if dtype is not None and dtype.is_float() else column
            text = known.cast(pl.String)
            hits = [text == category for category in self.categories]
            other = ~text.is_in(list(self.categories))
            if self.missing not in ("error", "drop"):  # else a null becomes NaN and is reported
                hits = [hit.fill_null(False) for hit in hits]
                other = other.fill_null(self.missing in ("mean", "zero"))
            absent = [known.is_null()] if self.missing == "indicator" else []
            parts = [*hits, other, *absent]
        else:
            number = column.cast(pl.Float64)
            parts = [number]
            if self.missing in ("mean", "zero", "indicator"):
                parts = [number.fill_nan(None).fill_null(self.fill)]
            if self.missing == "indicator":
                parts.append(number.fill_nan(None).is_null())
        return [
            expression.cast(pl.Float32).alias(name)
            for expression, name in zip(parts, self.dimensions, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class ContextSchema:
    """The features of a context in order; turns tables into matrices the same way every time."""

    features: tuple[Feature, ...]
    dimensions: tuple[str, ...] = field(init=False, repr=False, compare=False)  # their encoded dimensions
    width: int = field(init=False, repr=False, compare=False)  # d, the length of an encoded context

    def __post_init__(self) -> None:
        names = [feature.name for feature in self.features]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(expected="every context column once", found=f"{twice} more than once")
        dimensions = tuple(name for feature in self.features for name in feature.dimensions)
        object.__setattr__(self, "dimensions", dimensions)
        object.__setattr__(self, "width", len(dimensions))

    @classmethod
    def numeric(cls, names: Sequence[str], levels: Sequence[Level] | None = None) -> ContextSchema:
        """A schema of plain numeric features."""
        chosen: Sequence[Level] = levels if levels is not None else ["session"] * len(names)
        return cls(
            features=tuple(Feature(name=name, level=level) for name, level in zip(names, chosen, strict=True))
        )

    def level_dimensions(self, level: Level) -> Int64Array:
        """The encoded dimensions of one level, e.g. ``"user"`` for the paper's x_u."""
        levels = [feature.level for feature in self.features for _ in feature.dimensions]
        return np.flatnonzero(np.array(levels, dtype=object) == level).astype(np.int64)

    def encode(self, table: pl.DataFrame) -> Float32Array:
        """Contexts [n, d] of a table that has this schema's columns."""
        absent = [feature.name for feature in self.features if feature.name not in table.columns]
        if absent:
            raise ColumnError(
                expected=f"the context columns {[feature.name for feature in self.features]}",
                found=f"a table without {absent}",
                remedy="rename the columns or open the log with another column map",
            )
        types = table.schema
        parts = [e for feature in self.features for e in feature.expressions(types[feature.name])]
        if not parts:
            return np.zeros((table.height, 0), dtype=np.float32)
        matrix: Float32Array = table.select(parts).to_numpy(order="c").astype(np.float32, copy=False)
        return matrix

    def encode_checked(self, table: pl.DataFrame) -> Float32Array:
        """Like ``encode``, for prediction time: a value that cannot be encoded is an error."""
        contexts = self.encode(table)
        bad = ~np.isfinite(contexts)
        if bad.any():
            row, column = (int(index[0]) for index in np.nonzero(bad))
            raise DataError(
                expected="a finite number in every context dimension",
                found=str(contexts[row, column]),
                where=f"column '{self.dimensions[column]}', row {row}",
                remedy="fill the value, or learn with a missing-value policy for this column",
            )
        return contexts

    def to_json(self) -> list[dict[str, Any]]:
        """A JSON-ready description."""
        return [asdict(feature) for feature in self.features]

    @classmethod
    def from_json(cls, rows: Sequence[dict[str, Any]]) -> ContextSchema:
        """The inverse of ``to_json``."""
        return cls(
            features=tuple(
                replace(Feature(**row), categories=tuple(row.get("categories", ()))) for row in rows
            )
        )
