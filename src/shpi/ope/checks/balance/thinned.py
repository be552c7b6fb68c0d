"""A sample of a long part of a log, for checks that need no more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shpi.data._log.ragged import rows_of_groups
from shpi.ope.problem import Part

MOST_ROWS = 200_000  # decisions of a part: 100 MB of columns, and an override of 0.4 % of them shows


def thinned(part: Part, most: int = MOST_ROWS) -> Part:
    """Every k-th trajectory, so that about ``most`` decisions are left; a shorter part as it is."""
    logs = part.logs
    step = -(-len(logs) // most)
    if step <= 1:
        return part
    chosen = np.arange(0, logs.n_trajectories, step)
    rows = rows_of_groups(logs.offsets, chosen)
    return replace(part, logs=logs.select(chosen), rewards=part.rewards[rows], _memo={})
