"""Learn from a whole table what is needed to encode its rows: categories, means, action ids."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from shpi.data._read.sources import TableSource, open_table
from shpi.data.actions import ActionSpace
from shpi.data.columns import Columns, is_glob, matches, missing_column
from shpi.data.schema import ContextSchema, Feature, Kind
from shpi.errors import ActionError, ColumnError
from shpi.protocols import Float64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

_TEXT = (pl.String, pl.Categorical, pl.Enum)
FILLED = ("mean", "zero", "indicator")  # missing-value policies that fill


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The map from a table's rows to arrays."""

    schema: ContextSchema
    action_space: ActionSpace
    candidate_columns: tuple[str, ...] = ()  # one boolean column per action, in the order of the ids
    behaviour_columns: tuple[str, ...] = ()  # one number column per action, in the order of the ids


def learn_encoding(
    table: TableSource,
    columns: Columns,
    *,
    schema: ContextSchema | None = None,
    action_space: ActionSpace | None = None,
    action_features: Any = None,
) -> Encoding:
    """Learn the encoding from the table, or check a given one against it."""
    names = table.columns
    columns.check_present(names)
    types = table.frame.collect_schema()
    _check_types(columns, types)
    # Action id → column, for a glob such as ``can_*``; empty for a list column.
    per_action: dict[str, dict[str, str]] = {"candidates": {}, "behaviour": {}}
    for role, named in per_action.items():
        pattern = getattr(columns, role)
        if pattern is not None and pattern not in names:
            hits = fnmatch.filter(names, pattern)
            if not hits:
                raise missing_column(role, pattern, names)
            head, _, tail = pattern.partition("*")
            named.update({name[len(head) : len(name) - len(tail)]: name for name in hits})
    if schema is None:
        schema = _learn_schema(table, columns, columns.context_columns(names), types)
    if action_space is None:
        extra = sorted({label for named in per_action.values() for label in named})
        action_space = _learn_actions(table, columns, types, extra, action_features)
    ids = [str(label) for label in action_space.ids]
    for role, named in per_action.items():
        absent = [label for label in ids if named and label not in named]
        if absent:
            raise ColumnError(
                expected=f"one {role} column for each of the {len(ids)} actions",
                found=f"none for action {absent[0]!r}",
            )
    candidates, behaviour = (tuple(named[i] for i in ids if named) for named in per_action.values())
    return Encoding(
        schema=schema,
        action_space=action_space,
        candidate_columns=candidates,
        behaviour_columns=behaviour,
    )


def note_filled(logs: LoggedData, frame: pl.LazyFrame) -> LoggedData:
    """The log with one ledger note per column whose missing values were filled.

    The source is counted: the encoded log does not show them.
    """
    features = [feature for feature in logs.schema.features if feature.missing in FILLED]
    if not features:
        return logs
    types = frame.collect_schema()
    counts = frame.select(
        _without_nan(f.name, types[f.name]).is_null().sum().alias(f.name) for f in features
    ).collect()
    notes = [
        f"column '{feature.name}': {count:,} missing values filled (policy '{feature.missing}')"
        for feature, count in zip(features, counts.row(0), strict=True)
        if count
    ]
    return replace(logs, ledger=replace(logs.ledger, notes=(*logs.ledger.notes, *notes)))


def _check_types(columns: Columns, types: pl.Schema) -> None:
    numeric = [("reward", columns.reward), ("propensity", columns.propensity)]
    numeric += [("metric", name) for name in columns.metrics if not is_glob(name)]
    for role, name in numeric:
        if name is not None and not (types[name].is_numeric() or types[name] == pl.Boolean):
            raise ColumnError(
                expected=f"a numeric {role} column",
                found=str(types[name]),
                where=f"column '{name}'",
                remedy="convert it to numbers; a stray text value turns a whole CSV column into text",
            )
    for role, name in (("terminated", columns.terminated), ("truncated", columns.truncated)):
        if name is not None and not (types[name].is_integer() or types[name] == pl.Boolean):
            raise ColumnError(
                expected=f"a boolean {role} column", found=str(types[name]), where=f"column '{name}'"
            )
    kind = types[columns.action]
    if not (kind.is_integer() or kind == pl.Boolean or isinstance(kind, _TEXT)):
        raise ColumnError(
            expected="integer or text action ids",
            found=str(kind),
            where=f"column '{columns.action}'",
            remedy="cast the actions to integers or strings",
        )


def _learn_schema(
    table: TableSource, columns: Columns, names: Sequence[str], types: pl.Schema
) -> ContextSchema:
    kinds = {name: _kind(name, types[name], columns) for name in names}
    means: dict[str, float] = {}
    filled = [
        n for n in names if kinds[n] != "categorical" and columns.missing_policy(n) in ("mean", "indicator")
    ]
    if filled:
        values = [pl.col(name).cast(pl.Float64).fill_nan(None) for name in filled]
        finite = [
            value.filter(value.is_finite()).mean().alias(n) for n, value in zip(filled, values, strict=True)
        ]
        means = {
            # rounded to single precision like the contexts, so that the order of summation does not matter
            n: _single(value or 0.0)
            for n, value in table.frame.select(finite).collect().row(0, named=True).items()
        }
    features = []
    for name in names:
        categories: tuple[str, ...] = ()
        if kinds[name] == "categorical":
            counts = (
                table.frame.select(value=_without_nan(name, types[name]).cast(pl.String).drop_nulls())
                .group_by("value")
                .len()
                .sort(["len", "value"], descending=[True, False])
                .head(columns.max_categories)
                .collect()
            )
            categories = tuple(sorted(counts["value"].to_list()))
        features.append(
            Feature(
                name=name,
                kind=kinds[name],
                level=columns.level_of(name),
                missing=columns.missing_policy(name),
                fill=means.get(name, 0.0),
                categories=categories,
            )
        )
    return ContextSchema(features=tuple(features))


def _single(value: float) -> float:
    with np.errstate(over="ignore"):  # overflows to infinity, which is reported later
        return float(np.float32(value))


def _without_nan(name: str, dtype: pl.DataType) -> pl.Expr:
    """A column in which NaN is a missing value, too."""
    return pl.col(name).fill_nan(None) if dtype.is_float() else pl.col(name)


def _kind(name: str, dtype: pl.DataType, columns: Columns) -> Kind:
    if isinstance(dtype, _TEXT) or matches(name, columns.categorical):
        return "categorical"
    if dtype == pl.Boolean:
        return "boolean"
    if dtype.is_numeric():
        return "numeric"
    raise ColumnError(
        expected="a numeric, boolean or text context column",
        found=str(dtype),
        where=f"column '{name}'",
        remedy="turn dates into numbers such as an age or an hour, and lists into columns",
    )


def _learn_actions(
    table: TableSource, columns: Columns, types: pl.Schema, extra: list[str], features: Any
) -> ActionSpace:
    dtype = types[columns.action]
    whole = dtype.is_integer() or dtype == pl.Boolean
    cast = pl.Int64 if whole else pl.String
    where = [pl.col(columns.action).cast(cast)]
    if columns.candidates is not None and columns.candidates in types:
        where.append(pl.col(columns.candidates).explode().cast(cast, strict=False))
    labels: set[Any] = set()
    for ids in where:
        labels |= set(table.frame.select(ids.alias("a")).unique().drop_nulls().collect()["a"].to_list())
    for label in extra:
        try:
            labels.add(int(label) if whole else label)
        except ValueError:
            raise ColumnError(
                expected="action ids in column names to be integers, like the action column",
                found=repr(label),
            ) from None
    values: Float64Array | None = None
    names: tuple[str, ...] = ()
    chosen = features if features is not None else columns.action_features
    if chosen is not None:
        keyed, names = _action_features(chosen, columns.action, cast)
        labels |= set(keyed)
        absent = sorted(labels - set(keyed), key=str)
        if absent:
            raise ActionError(
                expected="a row of action features for every action",
                found=f"none for {absent[0]!r} ({len(absent)} without)",
                remedy="add the rows to the action table",
            )
        values = np.array([keyed[label] for label in sorted(labels)], dtype=np.float64).reshape(
            len(labels), -1
        )
    return ActionSpace(ids=tuple(sorted(labels)), features=values, feature_names=names)


def _action_features(source: Any, action: str, cast: Any) -> tuple[dict[Any, list[float]], tuple[str, ...]]:
    """Features per action: numbers as they are, text one-hot."""
    frame = open_table(source).frame.collect()
    key = action if action in frame.columns else frame.columns[0]
    if frame[key].is_duplicated().any():
        raise ActionError(
            expected="one row per action", found=f"an id twice in column '{key}' of the action table"
        )
    body = frame.drop(key)
    text = [name for name, dtype in body.schema.items() if isinstance(dtype, _TEXT)]
    body = body.to_dummies(columns=text, separator="=") if text else body
    matrix = body.cast(pl.Float64).to_numpy()
    if not np.isfinite(matrix).all():
        row, column = (int(index[0]) for index in np.nonzero(~np.isfinite(matrix)))
        raise ActionError(
            expected="finite action features",
            found="a missing or infinite value",
            where=f"column '{body.columns[column]}', row {row} of the action table",
        )
    ids = frame[key].cast(cast).to_list()
    return dict(zip(ids, matrix.tolist(), strict=True)), tuple(body.columns)
