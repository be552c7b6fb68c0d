"""From filled columns to trajectories: which rows are decisions, where trajectories start and how they end.

Duplicates are removed first and leave no trace. Any other unusable row is a *hole*: the trajectory ends
before it (truncated) and a new one of the same user starts after it, because skipping a decision would
invent a transition. A row without an action at the end of a user's rows is not a decision but the user's last
context.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shpi.data._read.fill import Filled
from shpi.data._read.order import RowOrder
from shpi.data._read.sources import TableSource
from shpi.data.columns import Columns
from shpi.errors import DataError
from shpi.protocols import BoolArray, Int64Array

Duplicates = Literal["drop", "keep", "error"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The trajectories of a table. Positions refer to the source's rows in sorted order."""

    decisions: Int64Array  # [n] positions of the decisions
    offsets: Int64Array  # [N + 1]
    session_offsets: Int64Array  # [S + 1]
    user_of_trajectory: Int64Array  # [N]
    final_from: Int64Array  # [N] the position whose context is the final one
    final_observed: BoolArray  # [N]
    terminated: BoolArray  # [N]
    final_rows: int  # rows that only carry a last context
    stray_rows: Int64Array  # positions that lack an action where one is required
    lonely_rows: Int64Array  # positions of last contexts of users without any decision


def repeated_rows(
    table: TableSource,
    columns: Columns,
    order: RowOrder,
    actions: NDArray[np.int32],
    duplicates: Duplicates,
) -> BoolArray:
    """Rows [n] that repeat the (user, time, order, action), or the identity columns, of an earlier row."""
    repeat = np.zeros(len(actions), dtype=bool)
    if duplicates == "keep":
        return repeat
    if columns.identity:
        unique = pl.struct(list(columns.identity)).is_first_distinct()
        repeat[order.target] = ~table.frame.select(unique).collect().to_series().to_numpy()
    elif columns.user is not None and order.tie.any():
        rows = np.flatnonzero(order.tie | np.append(order.tie[1:], False))
        group = np.cumsum(~order.tie)[rows]
        key = group.astype(np.int64) * (int(actions.max()) + 2) + actions[rows]
        _, first = np.unique(key, return_index=True)
        repeat[rows] = True
        repeat[rows[first]] = False
    if duplicates == "error" and repeat.any():
        raise DataError(
            expected="every decision once",
            found=f"{int(repeat.sum())} that repeat an earlier one",
            where=table.locate(int(order.source_row[np.flatnonzero(repeat)].min())),
            remedy="remove them, read with duplicates='drop' or 'keep', or name an order column",
        )
    return repeat


def lay_out(order: RowOrder, filled: Filled, duplicate: BoolArray) -> Layout:
    """Find the decisions, the trajectories and their endings."""
    kept = np.flatnonzero(~duplicate)
    user = (np.cumsum(order.user_start) - 1)[kept]
    same_next = np.append(user[1:] == user[:-1], False)
    same_before = np.append(False, same_next[:-1])
    no_action = filled.actions[kept] == -1
    final_row = no_action & ~same_next & ~filled.lost_context[kept] & (filled.reason[kept] == 0)
    decision = ~no_action & (filled.reason[kept] == 0)
    ended = filled.terminated[kept] & decision
    cut = filled.truncated[kept] & decision

    next_decides = np.append(decision[1:], False) & same_next
    if (ended & next_decides).any():
        position = int(kept[np.flatnonzero(ended & next_decides)[0]])
        raise DataError(
            expected="no decision of a user after terminated = true (gone for good)",
            found="another decision of the same user",
            where=f"row {int(order.source_row[position])} is terminated and is not the user's last",
            remedy="give each episode its own user id, or use 'truncated' or a session column for pauses",
        )
    before_decides = np.append(False, decision[:-1]) & same_before
    start = decision & ~(before_decides & ~np.append(False, cut[:-1]))
    last = decision & ~(next_decides & ~cut)
    # The context after a trajectory's last decision: a final row, or a hole whose context is known.
    after = np.minimum(np.arange(len(kept)) + 1, len(kept) - 1)
    known = last & same_next & ~cut & ~filled.lost_context[kept[after]] & ~decision[after]
    final_from = np.where(known, kept[after], kept)

    decisions = kept[decision]
    starts_in_decisions = start[decision]
    session = np.cumsum(order.session_start)[decisions]
    session_start = starts_in_decisions | np.append(True, session[1:] != session[:-1])[: len(decisions)]
    used_final = final_row & np.append(False, decision[:-1]) & same_before
    return Layout(
        decisions=decisions,
        offsets=np.append(np.flatnonzero(starts_in_decisions), len(decisions)).astype(np.int64),
        session_offsets=np.append(np.flatnonzero(session_start), len(decisions)).astype(np.int64),
        user_of_trajectory=user[start],
        final_from=final_from[last],
        final_observed=known[last],
        terminated=ended[last],
        final_rows=int(used_final.sum()),
        stray_rows=kept[no_action & ~final_row & (filled.reason[kept] == 0)],
        lonely_rows=kept[final_row & ~used_final],
    )
