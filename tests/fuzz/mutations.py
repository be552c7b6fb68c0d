"""Damage for fuzzers: bytes, JSON values and tables, changed at random by a seeded generator."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import polars as pl

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 10**30, 0.5, 1e308, -0.0),
    *("", "x", "²", "0", "1.5", "a" * 3000, "\x00", "../x", "/etc/passwd", "\ud7ff"),
    *([], [[]], [1], ["x"], {}, {"a": 1}, [None], [[1], [1, 2]]),
)
_TYPES: tuple[Any, ...] = (
    *(pl.String, pl.Float32, pl.Int8, pl.Boolean, pl.Categorical, pl.UInt64, pl.Datetime("ns"), pl.Date),
)


def change_bytes(data: bytes, chance: random.Random) -> bytes:
    """Flip, cut, repeat, insert or zero some bytes."""
    if not data:
        return bytes([chance.randrange(256)])
    place, size = chance.randrange(len(data)), chance.choice([1, 1, 2, 8, 64])
    kind = chance.randrange(6)
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + data[place + size :]
    if kind == 2:
        return data[:place] + data[place : place + size] * 2 + data[place + size :]
    if kind == 3:
        return data[:place] + bytes(chance.randrange(256) for _ in range(size)) + data[place:]
    if kind == 4:
        return data[:place] + bytes(size) + data[place + size :]
    return data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1 :]


def change_json(content: Any, chance: random.Random) -> Any:
    """Replace, delete, add, swap or retype one value somewhere inside."""
    changed = copy.deepcopy(content)
    places = list(_places(changed))
    if not places:
        return chance.choice(ODD)
    for _ in range(chance.choice([1, 1, 1, 2])):
        holder, key = chance.choice(places)
        if isinstance(holder, list) and not 0 <= key < len(holder):
            continue
        if isinstance(holder, dict) and key not in holder:
            continue
        kind = chance.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[chance.choice(["x", "", "version", "kind"])] = copy.deepcopy(chance.choice(ODD))
        elif kind == 2:
            other, other_key = chance.choice(places)
            try:
                holder[key], other[other_key] = copy.deepcopy(other[other_key]), copy.deepcopy(holder[key])
            except (KeyError, IndexError):
                continue
        elif kind == 3 and isinstance(holder[key], int | float):
            holder[key] = holder[key] + chance.choice([1, -1, 1e9, 0.5])
        elif kind == 4 and isinstance(holder[key], list):
            chance.shuffle(holder[key])
        else:
            holder[key] = copy.deepcopy(chance.choice(ODD))
    return changed


def _places(content: Any) -> Any:
    if isinstance(content, dict):
        for key, value in content.items():
            yield content, key
            yield from _places(value)
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield content, index
            yield from _places(value)


def change_table(frame: pl.DataFrame, chance: random.Random) -> pl.DataFrame:
    """Spoil one column: its type, single values, its name, or its presence."""
    name = chance.choice(frame.columns)
    column, kind = frame[name], chance.randrange(9)
    row = chance.randrange(frame.height)
    if kind == 0:
        return frame.drop(name)
    if kind == 1:
        other = chance.choice(["x", " ", "uid2", name.upper()])
        return frame if other in frame.columns else frame.rename({name: other})
    if kind == 2:
        return _try(frame, column, chance.choice(_TYPES))
    values = column.to_list()
    if kind == 3:
        values[row] = None
    elif kind == 4:
        odd = chance.choice([float("nan"), float("inf"), -1.0, 1e300, 0.0, 5e-324, 2.0])
        reals = [odd if i == row else _real(v) for i, v in enumerate(values)]
        return frame.with_columns(pl.Series(name, reals))
    elif kind == 5:
        return frame.with_columns(pl.Series(name, [[v] for v in values]))
    elif kind == 6:
        return frame.with_columns(pl.Series(name, [{"a": v} for v in values]))
    elif kind == 7:
        return frame.with_columns(pl.Series(name, [chance.choice(values) for _ in values]))
    else:
        return (
            frame.head(chance.choice([0, 1, 2]))
            if chance.random() < 0.3
            else frame.sample(fraction=1.0, shuffle=True, seed=chance.randrange(1000))
        )
    return frame.with_columns(pl.Series(name, values, dtype=column.dtype))


def _try(frame: pl.DataFrame, column: pl.Series, dtype: Any) -> pl.DataFrame:
    try:
        return frame.with_columns(column.cast(dtype, strict=False).alias(column.name))
    except pl.exceptions.PolarsError:
        return frame


def _real(value: Any) -> float:
    return float(value) if isinstance(value, int | float | np.number) else 1.0
