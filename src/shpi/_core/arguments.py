"""Removed fields of a class: using one raises an error that says what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from shpi.errors import ConfigError

T = TypeVar("T")


def without(**gone: str) -> Callable[[type[T]], type[T]]:
    """Decorate a class that had more fields in version 0.1; ``gone`` maps each to its replacement advice."""

    def decorate(cls: type[T]) -> type[T]:
        plain: Any = cls.__init__

        @wraps(plain)
        def checked(self: Any, *args: Any, **settings: Any) -> None:
            for name in settings.keys() & gone.keys():
                raise ConfigError(
                    expected=f"arguments of {cls.__name__} as they are since 0.2",
                    found=f"{name}=",
                    remedy=gone[name],
                )
            plain(self, *args, **settings)

        def explain(self: Any, name: str) -> Any:
            words = f", which is gone since 0.2: {gone[name]}" if name in gone else ""
            raise AttributeError(
                f"'{cls.__name__}' object has no attribute '{name}'{words}", name=name, obj=self
            )

        cls.__init__ = checked  # type: ignore[method-assign]
        cls.__getattr__ = explain  # type: ignore[attr-defined]
        return cls

    return decorate
