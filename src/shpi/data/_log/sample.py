"""Some users of a log, drawn by their hash: the same ones in memory and in shards of whatever number.

The users with the smallest hashes are taken, until they have enough decisions. The smallest hashes of a log
are among the smallest hashes of its shards, so one pass draws them; and a smaller sample is part of a larger
one, so one pass draws all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from shpi._core.hashing import hash_users
from shpi.data._log.slicing import join
from shpi.data.logged import LoggedData

MOST_ROWS = 200_000  # decisions: 100 MB of columns, and an override of 0.4 % of them shows
LEAST_USERS = 30  # whatever the decisions of each


def draw(chunks: Iterable[LoggedData], most_rows: int, seed: int, least: int = LEAST_USERS) -> LoggedData:
    """Users who have about ``most_rows`` decisions in all, in the order of their ids.

    Args:
        chunks: the whole log, no user in two of them.
        most_rows: number of decisions at which it is enough; the last user goes beyond it.
        seed: random seed of the draw.
        least: number of users that are drawn even if they have more decisions.
    """
    drawn: LoggedData | None = None
    for logs in chunks:
        held = logs if drawn is None else join([drawn, logs])
        drawn = smallest(held, most_rows, seed, least)
    assert drawn is not None
    if (np.diff(drawn.user_codes) >= 0).all():
        return drawn
    order = np.argsort(drawn.user_codes, kind="stable")  # those of one user stay in theirs
    return replace(drawn.select(order), ledger=drawn.ledger)


def smallest(logs: LoggedData, most_rows: int, seed: int, least: int) -> LoggedData:
    """The users of one chunk that a sample of the whole log may have.

    What a log says beyond its rows (`shpi.data._log.cut`) is found anew from the rows that are left, so that
    a sample does not remember the shards it came from.
    """
    if len(logs) <= most_rows:
        return logs
    order = np.argsort(hash_users(logs.user_ids, "sample", seed), kind="stable")
    rows = np.bincount(logs.user_codes, weights=np.diff(logs.offsets), minlength=logs.n_users)[order]
    enough = int(np.searchsorted(np.cumsum(rows), most_rows)) + 1
    chosen = np.zeros(logs.n_users, dtype=bool)
    chosen[order[: max(enough, least)]] = True
    return logs if chosen.all() else replace(logs.select(chosen[logs.user_codes]))
