"""A log as a table for people: item ids, dates, names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData


def log_frame(logs: LoggedData) -> pl.DataFrame:
    """One row per decision, in the order of the log.

    Columns: user, time, session (its number in the log), item, reward, propensity, the context dimensions
    and the metrics under their own names; a name that is taken gets the prefix ``context.`` or ``metric.``.
    """
    times = pl.Series("time", logs.times)
    columns = [
        pl.Series("user", logs.users[logs.trajectory_of_row]),
        times.cast(pl.Datetime("us")) if logs.time_unit == "us" else times,
        pl.Series("session", logs.session_of_row),
        pl.Series("item", np.array(logs.action_space.ids)[logs.actions]),
    ]
    columns += [pl.Series("reward", logs.rewards)] if logs.rewards is not None else []
    columns += [pl.Series("propensity", logs.propensities)] if logs.propensities is not None else []
    taken = {column.name for column in columns}
    context = zip(logs.schema.dimensions, logs.contexts.T, strict=True)
    for kind, pairs in (("context", context), ("metric", logs.metrics.items())):
        for name, values in pairs:
            shown = f"{kind}.{name}" if name in taken else name
            taken.add(shown)
            columns.append(pl.Series(shown, values))
    return pl.DataFrame(columns)
