"""Take an object apart into settings, arrays and children, and put it together again; no pickle.

Policies, scorers and feature maps are frozen dataclasses whose fields are plain settings (numbers, strings,
flags), numpy arrays, other such objects, or tuples of one of these. That is enough to write any of them to a
file: the structure as JSON, the arrays as npz. A class registers under a name:

    @saveable("policies/greedy")
    @dataclass(frozen=True, eq=False)
    class Greedy: ...

The name has an entry in `shpi.features.kinds`, so that its module is imported when a file asks for it.
Classes of your own need none: import their module before you load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shpi.errors import ConfigError, DataError, ShpiError
from shpi.features.kinds import HOMES

_CLASSES: dict[str, type[Any]] = {}
_KINDS: dict[type[Any], str] = {}
_PLAIN: dict[str, tuple[type, ...]] = {  # the types of settings, by their annotation
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
    "int | None": (int, type(None)),
    "float | None": (int, float, type(None)),
    "str | None": (str, type(None)),
}

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """The parts of one object. A tuple field ``f`` becomes the entries ``f.0``, ``f.1``, …."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # JSON-ready values
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    children: Mapping[str, Parts] = field(default_factory=dict)


def saveable(kind: str) -> Callable[[type[T]], type[T]]:
    """Register a frozen dataclass under a name such as ``policies/greedy``."""

    def register(cls: type[T]) -> type[T]:
        if _CLASSES.setdefault(kind, cls) is not cls:
            raise ConfigError(expected="one class per kind", found=f"a second class for '{kind}'")
        _KINDS[cls] = kind
        return cls

    return register


def class_of(kind: str) -> type[Any]:
    """The class registered as ``kind``; the module of one of shpi's own is imported when needed."""
    if kind not in _CLASSES and kind in HOMES:
        import_module(HOMES[kind])
    if kind not in _CLASSES:
        raise DataError(
            expected=f"one of the known kinds {sorted(HOMES.keys() | _CLASSES.keys())}",
            found=f"'{kind}'",
            remedy="import the module that defines this kind, or install the version of shpi that wrote it",
        )
    return _CLASSES[kind]


def take_apart(thing: Any) -> Parts:
    """The parts of an object of a registered class, or of its ``saved_form`` if it has one."""
    thing = getattr(thing, "saved_form", thing)
    kind = _KINDS.get(type(thing))
    if kind is None:
        raise ConfigError(
            expected="an object that can be saved: one of shpi's own, or a class marked with `saveable`",
            found=f"a {type(thing).__name__}",
            remedy="use a scorer or policy made of arrays, such as LinearScorer or MlpScorer",
        )
    settings: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    children: dict[str, Parts] = {}
    entries: dict[str, Any] = {}  # a tuple is spread over numbered names
    for item in fields(thing):
        value = getattr(thing, item.name)
        if item.init and isinstance(value, tuple):
            entries |= {f"{item.name}.{i}": member for i, member in enumerate(value)}
        elif item.init:
            entries[item.name] = value
    for name, value in entries.items():
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif value is None or isinstance(value, bool | int | float | str):
            settings[name] = value
        else:
            children[name] = take_apart(value)
    return Parts(kind=kind, settings=settings, arrays=arrays, children=children)


def put_together(parts: Parts) -> Any:
    """Rebuild an object from its parts; its own checks run as for any new object."""
    cls = class_of(parts.kind)
    entries: dict[str, Any] = {**parts.settings, **parts.arrays}
    entries |= {name: put_together(child) for name, child in parts.children.items()}
    known = {item.name for item in fields(cls) if item.init}
    plain = {name: value for name, value in entries.items() if "." not in name}
    for name in sorted({key.split(".")[0] for key in entries} - plain.keys()):
        members = {key: entries[key] for key in entries if key.startswith(f"{name}.")}
        plain[name] = tuple(members.get(f"{name}.{i}") for i in range(len(members)))
    if plain.keys() - known:
        raise DataError(
            expected=f"the fields {sorted(known)} of '{parts.kind}'",
            found=f"{sorted(plain.keys() - known)}",
            remedy="load the file with the version of shpi that wrote it",
        )
    for item in fields(cls):  # ``epsilon`` is no text, ``n_actions`` no flag
        allowed, value = _PLAIN.get(str(item.type)), plain.get(item.name)
        if allowed is None or item.name not in plain:
            continue
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise DataError(
                expected=f"'{item.name}' of '{parts.kind}' as {item.type}",
                found=repr(value)[:80],
                remedy="copy the file again from where it was saved",
            )
    try:
        return cls(**plain)
    except ShpiError as error:
        raise DataError(
            expected=error.expected,
            found=error.found,
            where=f"the saved '{parts.kind}'",
            remedy="copy the file again from where it was saved",
        ) from None
    except Exception as error:  # a constructor may raise anything on damaged values
        raise DataError(
            expected=f"all fields of '{parts.kind}'",
            found=f"{type(error).__name__}: {error}"[:200],
            remedy="load the file with the version of shpi that wrote it",
        ) from None


def freeze(thing: object, *names: str, ndim: int, dtype: type[np.generic] | None = np.float64) -> None:
    """Replace arrays of a frozen dataclass by their `frozen_array`; call it in ``__post_init__``."""
    for name in names:
        object.__setattr__(thing, name, frozen_array(getattr(thing, name), name, ndim=ndim, dtype=dtype))


def frozen_array(
    values: Any, name: str, *, ndim: int, dtype: type[np.generic] | None = np.float64
) -> NDArray[Any]:
    """A read-only copy with the given number of axes and finite entries; ``dtype=None`` keeps the type."""
    array = np.array(values, dtype=dtype)
    if array.ndim != ndim:
        raise ConfigError(expected=f"{name} with {ndim} axes", found=f"shape {array.shape}")
    if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
        raise ConfigError(expected=f"finite numbers in {name}", found="NaN, infinity or no numbers")
    array.setflags(write=False)
    return array
