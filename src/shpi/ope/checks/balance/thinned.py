"""A sample of a long chunk of a log, for checks that need no more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shpi.data._log.ragged import rows_of_groups
from shpi.ope.problem import Chunk

MOST_ROWS = 200_000  # decisions of a chunk: 100 MB of columns, and an override of 0.4 % of them shows


def thinned(chunk: Chunk, most: int = MOST_ROWS) -> Chunk:
    """Every k-th trajectory, so that about ``most`` decisions are left; a shorter chunk as it is."""
    logs = chunk.logs
    step = -(-len(logs) // most)
    if step <= 1:
        return chunk
    chosen = np.arange(0, logs.n_trajectories, step)
    rows = rows_of_groups(logs.offsets, chosen)
    return replace(chunk, logs=logs.select(chosen), rewards=chunk.rewards[rows], _memo={})
