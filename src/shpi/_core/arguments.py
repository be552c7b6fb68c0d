"""Arguments that a class had in an earlier version: whoever still writes them is told what to write."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from shpi.errors import ConfigError

T = TypeVar("T")


def without(**gone: str) -> Callable[[type[T]], type[T]]:
    """Mark a class whose constructor had more arguments in version 0.1: what each is told instead."""

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

        cls.__init__ = checked  # type: ignore[method-assign]
        return cls

    return decorate
