"""Results as JSON: numpy values become plain ones, and NaN and infinity become null."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def finite(value: Any) -> Any:
    """The same content with null for NaN and infinity, lists for tuples and plain numbers for numpy's."""
    if isinstance(value, Mapping):
        return {str(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    if hasattr(value, "tolist"):  # an array or a number of numpy
        return finite(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
