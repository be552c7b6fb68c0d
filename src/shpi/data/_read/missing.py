"""Count the context values that were filled. The source is counted: the encoded log does not show them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

FILLED = ("mean", "zero", "indicator")  # missing-value policies that fill


def note_filled(logs: LoggedData, frame: pl.LazyFrame) -> LoggedData:
    """The log with one ledger note per column whose missing values were filled."""
    features = [feature for feature in logs.schema.features if feature.missing in FILLED]
    if not features:
        return logs
    types = frame.collect_schema()
    counts = frame.select(
        (pl.col(f.name).is_null() | _is_nan(f.name, types[f.name])).sum().alias(f.name) for f in features
    ).collect()
    notes = [
        f"column '{feature.name}': {count:,} missing values filled (policy '{feature.missing}')"
        for feature, count in zip(features, counts.row(0), strict=True)
        if count
    ]
    return replace(logs, ledger=replace(logs.ledger, notes=(*logs.ledger.notes, *notes)))


def _is_nan(name: str, dtype: pl.DataType) -> pl.Expr:
    """Whether a value is NaN; a null stays null and is counted by ``is_null``."""
    return pl.col(name).is_nan() if dtype.is_float() else pl.lit(False)
