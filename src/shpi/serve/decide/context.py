"""Encodes a context in JSON as the vector that the policy was learned on, like `ContextSchema.encode`.

A dataframe library needs almost a millisecond per row; a comprehension takes three microseconds. Numbers are
rounded to single precision, as in a log. Keys that the schema does not know are ignored here and kept in the
log: the next policy may use them. Objects within a context are flattened: ``{"user": {"age": 3}}`` is
``user.age``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import astuple

from shpi.errors import DataError
from shpi.protocols import Float64Array

if TYPE_CHECKING:  # the schema's module imports polars, which a server does not need
    from shpi.data.schema import ContextSchema, Feature

_LARGEST = 3.4e38  # largest absolute value of a float32
_NUMBERS = {float, int, bool}
_REMEDY = "send the feature, or learn with a missing-value policy for this column"


class ContextEncoder:
    """Turns the context of a request into a vector."""

    def __init__(self, schema: ContextSchema) -> None:
        self.width = schema.width
        self._names = tuple(feature.name for feature in schema.features)
        self._parts = [_part(feature) for feature in schema.features]
        plain = all(f.kind != "categorical" and f.missing in ("error", "drop") for f in schema.features)
        self._pick = itemgetter(*self._names) if plain and len(self._names) > 1 else None
        self._decode = _decoder_of(self._names) if plain and self._names else None
        self._pack = Struct(f"<{len(self._names)}f").pack  # rounds to single precision; raises on overflow

    def encode(self, context: Mapping[str, Any]) -> Float64Array:
        """The vector [d]; a DataError names the feature that cannot be used."""
        if self._pick is not None:
            try:
                values = self._pick(context)
                if set(map(type, values)) <= _NUMBERS:
                    return self._checked(np.array(values, dtype=np.float64))
            except (KeyError, OverflowError):
                pass  # the slow path below says what is wrong
        if any(isinstance(value, Mapping) for value in context.values()):
            context = flat(context)
        numbers: list[float] = []
        for name, write in zip(self._names, self._parts, strict=True):
            write(context.get(name), numbers)
        return self._checked(np.array(numbers, dtype=np.float64))

    def encode_each(self, contexts: Sequence[bytes]) -> Float64Array | None:
        """The vectors [n, d] of contexts in JSON; None if one of them is invalid or not just numbers."""
        if self._decode is None:
            return None
        try:
            packed = b"".join([self._pack(*astuple(self._decode(context))) for context in contexts])
        except (msgspec.MsgspecError, OverflowError):
            return None  # encoding them one by one says what is wrong
        return np.frombuffer(packed, "<f4").reshape(len(contexts), -1).astype(np.float64)

    def _checked(self, vector: Float64Array) -> Float64Array:
        """Round to single precision; a number that overflows is an error."""
        # argmin and argmax are faster than min and max, and return the index of a NaN if there is one.
        if len(vector) and not (vector[vector.argmin()] > -_LARGEST and vector[vector.argmax()] < _LARGEST):
            raise DataError(
                expected="numbers that fit single precision",
                found="one that does not",
                where="context",
                remedy="scale the feature, for example by its logarithm",
            )
        return vector.astype(np.float32).astype(np.float64)


def _decoder_of(names: Sequence[str]) -> Callable[[bytes], msgspec.Struct]:
    """A function that decodes these numbers of a context, and nothing else."""
    fields = {f"c{place}": name for place, name in enumerate(names)}
    numbers = msgspec.defstruct("Numbers", [(field, float) for field in fields], rename=fields, gc=False)
    return msgspec.json.Decoder(numbers).decode


def flat(context: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """A context with nested objects flattened into dotted names, and lists into numbered ones."""
    columns: dict[str, Any] = {}
    for key, value in context.items():
        if isinstance(value, Mapping):
            columns |= flat(value, f"{before}{key}.")
        elif isinstance(value, list):
            columns |= flat({str(place): item for place, item in enumerate(value)}, f"{before}{key}.")
        else:
            columns[f"{before}{key}"] = value
    return columns


def _part(feature: Feature) -> Callable[[Any, list[float]], None]:
    """A function that appends the dimensions of one feature to a list."""
    return _category(feature) if feature.kind == "categorical" else _number(feature)


def _number(feature: Feature) -> Callable[[Any, list[float]], None]:
    name, strict, fill = feature.name, feature.missing in ("error", "drop"), feature.fill
    flagged = feature.missing == "indicator"

    def append(value: Any, numbers: list[float]) -> None:
        known = value is not None and value == value
        if known and type(value) not in _NUMBERS:
            raise _wrong(name, "a number", value)
        if not known and strict:
            raise _wrong(name, "a number", value)
        try:
            numbers.append(float(value) if known else fill)
        except OverflowError:
            raise _wrong(name, "a number that fits single precision", "a larger one") from None
        if flagged:
            numbers.append(0.0 if known else 1.0)

    return append


def _category(feature: Feature) -> Callable[[Any, list[float]], None]:
    places = {category: place for place, category in enumerate(feature.categories)}
    count, strict = len(places), feature.missing in ("error", "drop")
    flagged, name = feature.missing == "indicator", feature.name

    def append(value: Any, numbers: list[float]) -> None:
        hits = [0.0] * (count + 1 + flagged)
        if value is None or value != value:
            if strict:
                raise _wrong(name, "a category", value)
            hits[count + flagged] = 1.0  # with "indicator", a dimension of its own; else <other>
        elif isinstance(value, str | int | float):
            hits[places.get(label(value), count)] = 1.0
        else:
            raise _wrong(name, "text, a number or a truth value", value)
        numbers += hits

    return append


def label(value: str | int | float) -> str:
    """A category as polars spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _wrong(name: str, expected: str, value: Any) -> DataError:
    kind = (
        "nothing" if value is None else f"{type(value).__name__}"
    )  # no value in the message: it may be personal data
    return DataError(expected=expected, found=kind, where=f"context feature '{name}'", remedy=_REMEDY)
