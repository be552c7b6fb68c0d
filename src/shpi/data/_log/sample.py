"""Sample the users of a log by their hash: the same users in memory and in any number of shards.

The users with the smallest hashes are taken until they have enough decisions. The smallest hashes of a log
are among the smallest hashes of its shards, so one pass is enough; a smaller sample is part of a larger one,
so one pass serves all sizes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from shpi._core.hashing import hash_users
from shpi.data._log.slicing import join
from shpi.data._log.users import first_users
from shpi.data.logged import LoggedData

MOST_ROWS = 200_000  # decisions: 100 MB of columns, and enough to detect an override of 0.4 % of them
LEAST_USERS = 30  # least number of users, however many decisions each has


def draw(chunks: Iterable[LoggedData], most_rows: int, seed: int, least: int = LEAST_USERS) -> LoggedData:
    """Sample users with about ``most_rows`` decisions in total, ordered by their ids.

    Args:
        chunks: parts of the whole log; all decisions of a user are in one part.
        most_rows: number of decisions at which to stop; the last user may exceed it.
        seed: random seed of the draw.
        least: number of users to draw even if they have more decisions.
    """
    drawn: LoggedData | None = None
    for logs in chunks:
        held = logs if drawn is None else join([drawn, logs])
        drawn = smallest(held, most_rows, seed, least)
    assert drawn is not None
    if (np.diff(drawn.user_codes) >= 0).all():
        return drawn
    order = np.argsort(drawn.user_codes, kind="stable")  # keeps the order within a user
    return replace(drawn.select(order), ledger=drawn.ledger)


def smallest(logs: LoggedData, most_rows: int, seed: int, least: int) -> LoggedData:
    """The users of one chunk who may belong to the sample of the whole log.

    The selection of `shpi.data._log.cut` is recomputed from the remaining rows, so that a sample does not
    depend on the shards it came from.
    """
    if len(logs) <= most_rows:
        return logs
    order = np.argsort(hash_users(logs.user_ids, "sample", seed), kind="stable")
    chosen = np.zeros(logs.n_users, dtype=bool)
    chosen[first_users(logs, order, most_rows, least=least)] = True
    return logs if chosen.all() else replace(logs.select(chosen[logs.user_codes]))
