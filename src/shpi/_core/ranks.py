"""Ranks without `scipy.stats`, whose import takes a second."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def mid_ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """The rank of each value, from 1; equal values share the mean of their ranks."""
    high = values == values.max()
    lows = len(values) - int(high.sum())
    if int((values == values.min()).sum()) == lows:  # an indicator: no need to sort
        return np.where(high, (lows + 1 + len(values)) / 2, (lows + 1) / 2)
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks
