"""Short names for oracles and values, which the command line and users can write instead of an object."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from shpi.errors import ConfigError

PARTS: dict[str, dict[str, tuple[str, str]]] = {
    "oracle": {
        "ridge": ("shpi.oracles", "Ridge"),
        "gbdt": ("shpi.oracles", "Gbdt"),
        "mlp": ("shpi.oracles", "Mlp"),
        "vw": ("shpi.oracles", "VowpalWabbit"),
        "coin": ("shpi.oracles", "CoinBetting"),
    },
    "value": {
        "lstd": ("shpi.values", "LSTD"),
        "bellman-residual": ("shpi.values", "BellmanResidual"),
        "td": ("shpi.values", "FittedTD"),
        "zero": ("shpi.values", "Constant"),
    },
}


def spell_out(learner: Any) -> None:
    """Replace names of oracles and values in a frozen learner's fields by objects; for ``__post_init__``."""
    for role, words in PARTS.items():
        value = getattr(learner, role, None)
        if not isinstance(value, str):
            continue
        if value not in words:
            raise ConfigError(expected=f"{role} among {', '.join(words)}, or an object", found=repr(value))
        module, attribute = words[value]
        object.__setattr__(learner, role, getattr(import_module(module), attribute)())
