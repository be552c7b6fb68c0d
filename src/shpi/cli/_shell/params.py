"""Options of the form KEY=VALUE."""

from __future__ import annotations

import json
from typing import Any

from shpi.errors import ConfigError


def parse_param(text: str) -> tuple[str, Any]:
    """``key=value``, where the value is JSON if it can be (numbers, true, lists) and else a string."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(expected="--param KEY=VALUE", found=repr(text))
    try:
        parsed = json.loads(value)
    except json.JSONDecodeError:
        parsed = value
    return key.strip(), tuple(parsed) if isinstance(parsed, list) else parsed
