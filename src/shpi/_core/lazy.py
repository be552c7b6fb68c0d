"""Import names of a package when they are first used, so that importing the package itself stays fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose public names live in other modules.

    Args:
        package: name of the package, for its error messages.
        homes: public name -> the module that defines it.
    """

    def get(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        raise AttributeError(f"module '{package}' has no attribute '{name}'", name=name)

    return get, lambda: sorted(homes)
