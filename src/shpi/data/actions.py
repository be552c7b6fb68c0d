"""The action set: ids as the log spells them, their positions 0..A-1, and optional features per action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shpi.errors import ActionError, ConfigError, DataError
from shpi.files.schema import REMEDY
from shpi.protocols import Float64Array, Int64Array


@dataclass(frozen=True, kw_only=True, eq=False)
class ActionSpace:
    """The actions of a log. ``ids[i]`` is the label of action index i; labels are ints or strings."""

    ids: tuple[int | str, ...]
    features: Float64Array | None = None  # [A, m]
    feature_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.ids)) != len(self.ids):
            raise ConfigError(expected="distinct action ids", found="an id twice")
        if self.features is not None:
            wanted = (len(self.ids), len(self.feature_names))
            if self.features.shape != wanted:
                raise ConfigError(
                    expected=f"action features of shape {wanted}", found=f"shape {self.features.shape}"
                )
            if not np.isfinite(self.features).all():
                raise ConfigError(expected="finite action features", found="NaN or infinity")

    @classmethod
    def numbered(cls, n_actions: int) -> ActionSpace:
        """Actions 0..n_actions-1 without features."""
        return cls(ids=tuple(range(n_actions)))

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ActionSpace):
            return NotImplemented
        same_features = (self.features is None) == (other.features is None) and (
            self.features is None or np.array_equal(self.features, np.asarray(other.features))
        )
        return self.ids == other.ids and self.feature_names == other.feature_names and same_features

    def __hash__(self) -> int:
        return hash((self.ids, self.feature_names))

    @cached_property
    def _position(self) -> dict[int | str, int]:
        return {label: index for index, label in enumerate(self.ids)}

    def index(self, labels: Sequence[int | str] | NDArray[Any]) -> Int64Array:
        """Positions of labels; an unknown label is an error that names it."""
        plain: list[int | str] = np.asarray(labels).tolist()
        try:
            return np.array([self._position[label] for label in plain], dtype=np.int64)
        except KeyError:
            row = next(i for i, label in enumerate(plain) if label not in self._position)
            raise ActionError(
                expected=f"one of the {len(self)} known actions",
                found=repr(plain[row]),
                where=f"row {row}",
                remedy="use the action ids of the log that the policy was learned from",
            ) from None

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready description."""
        features = None if self.features is None else self.features.tolist()
        return {"ids": list(self.ids), "feature_names": list(self.feature_names), "features": features}

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> ActionSpace:
        """The inverse of ``to_json``."""
        features = row.get("features")
        if features is not None and len({len(values) for values in features}) > 1:
            raise DataError(
                expected="action features of equal length", found="rows of different lengths", remedy=REMEDY
            )
        return cls(
            ids=tuple(row["ids"]),
            feature_names=tuple(row.get("feature_names", ())),
            features=None if features is None else np.asarray(features, dtype=np.float64),
        )
