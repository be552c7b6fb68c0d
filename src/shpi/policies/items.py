"""Act on tables and return item ids, by the schema and the action ids of the training log.

A policy maps contexts [n, d] to probabilities over actions 0..A-1. Users have tables and item ids. `Items`
converts between them: it holds the schema that encodes a row, and the ids of the actions. Learners and
`load_policy` attach it, `save` writes it, ``policy.act(table, seed=7)`` uses it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shpi.errors import ConfigError, DataError
from shpi.protocols import BoolArray, Float32Array

if TYPE_CHECKING:  # the readers of tables are slow to import, and rarely needed where a policy acts
    import polars as pl

    from shpi.data.actions import ActionSpace
    from shpi.data.schema import ContextSchema

P = TypeVar("P")
_TABLES = ("polars", "pandas", "pyarrow")


@dataclass(frozen=True, kw_only=True, eq=False)
class Items:
    """The map from rows to contexts, and the item ids of the actions 0..A-1.

    Args:
        of_schema: the schema, or the JSON of one, which is read when it is first needed.
        of_actions: the actions, or the JSON of them.
    """

    of_schema: ContextSchema | list[dict[str, Any]] | None = None
    of_actions: ActionSpace | dict[str, Any] | None = None

    @cached_property
    def schema(self) -> ContextSchema | None:
        """The columns of a context."""
        if not isinstance(self.of_schema, list):
            return self.of_schema
        from shpi.data.schema import ContextSchema

        return ContextSchema.from_json(self.of_schema)

    @cached_property
    def actions(self) -> ActionSpace | None:
        """The ids of the actions."""
        if not isinstance(self.of_actions, dict):
            return self.of_actions
        from shpi.data.actions import ActionSpace

        return ActionSpace.from_json(self.of_actions)

    def contexts(self, rows: Any) -> Float32Array:
        """Contexts [n, d] of the rows of a table."""
        if self.schema is None:
            raise ConfigError(
                expected="a policy that knows its context columns, for a table",
                found="one that does not",
                remedy="give it contexts as numbers [n, d], or save it with schema=logs.schema",
            )
        return self.schema.encode_checked(as_table(rows))

    def ids(self, actions: NDArray[np.integer[Any]]) -> NDArray[Any]:
        """The item ids of positions; the positions themselves where no ids are known."""
        if self.actions is None:
            return actions
        known: NDArray[Any] = np.array(self.actions.ids)
        chosen: NDArray[Any] = known[actions]
        return chosen

    def mask(self, candidates: Any, n: int, n_actions: int) -> BoolArray:
        """A mask [n, A], from a mask or from a list of allowed item ids per row."""
        array = candidates if isinstance(candidates, np.ndarray) else None
        if array is not None and array.dtype == np.bool_:
            return array
        if self.actions is None or len(candidates) != n:
            raise DataError(
                expected=f"candidates as a mask [{n}, {n_actions}], or {n} lists of item ids",
                found=f"{len(candidates)} of type {type(candidates).__name__}",
            )
        mask = np.zeros((n, n_actions), dtype=bool)
        for row, allowed in enumerate(candidates):
            mask[row, self.actions.index(list(allowed))] = True
        return mask


def with_items(
    policy: P,
    *,
    schema: ContextSchema | list[dict[str, Any]] | None = None,
    actions: ActionSpace | dict[str, Any] | None = None,
) -> P:
    """The same policy, which also takes rows and returns item ids; foreign policies are left unchanged."""
    if not hasattr(type(policy), "items") or (schema is None and actions is None):
        return policy
    knowing = copy.copy(policy)
    object.__setattr__(knowing, "items", Items(of_schema=schema, of_actions=actions))
    return knowing


def is_table(rows: ArrayLike | Any) -> bool:
    """Whether these are rows with named columns rather than numbers."""
    if isinstance(rows, Mapping):
        return True
    if isinstance(rows, Sequence) and not isinstance(rows, str) and len(rows):
        return isinstance(rows[0], Mapping)
    return type(rows).__module__.split(".")[0] in _TABLES


def as_table(rows: Any) -> pl.DataFrame:
    """A polars table of a polars, pandas or Arrow one, of a list of records or of columns by name."""
    import polars as pl

    if isinstance(rows, pl.LazyFrame):
        return rows.collect()
    if isinstance(rows, pl.DataFrame):
        return rows
    if isinstance(rows, Mapping | Sequence):
        single = isinstance(rows, Mapping) and all(np.ndim(value) == 0 for value in rows.values())
        return pl.DataFrame([rows] if single else rows)
    if type(rows).__module__.split(".")[0] == "pandas":
        return pl.from_pandas(rows)
    return pl.DataFrame(pl.from_arrow(rows))
