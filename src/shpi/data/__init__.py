"""Logged decisions: read a table, validate it, split it by users, derive rewards, audit it.

columns, logged   Columns, LoggedData: which column means what, and the log itself
actions, schema   ActionSpace, ContextSchema: the action set, and what a context is made of
rewards           ReturnWithin, SumWithin, SessionsWithin, DiscountedSum: long-term rewards
question          Metric: what is counted, from when, for how long
propensity        PropensityModel: mu(a|x) estimated from the log
shards, canonical ShardedLog, prepare_shards, write_canonical: logs on disk, larger than memory too
audit             is this log fit for learning?
tables            CSV, JSON lines, Parquet folders, and outcomes from a second table
adapters          to and from the structures of other libraries
datasets          public logs
_read             builds `LoggedData` from a table;  `_log`: its internals;  `_behaviour`: those of propensity
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shpi._core.lazy import lazy_names

if TYPE_CHECKING:
    from shpi.data.actions import ActionSpace
    from shpi.data.canonical import read_canonical, write_canonical
    from shpi.data.columns import Columns
    from shpi.data.decomposition import Decomposition, decompose
    from shpi.data.durations import parse_duration
    from shpi.data.logged import LoggedData
    from shpi.data.propensity import FittedPropensity, PropensityModel
    from shpi.data.question.metric import Metric
    from shpi.data.rewards import DiscountedSum, ReturnWithin, SessionsWithin, SumWithin
    from shpi.data.schema import ContextSchema, Feature
    from shpi.data.shards import ShardedLog, prepare_shards, write_shards
    from shpi.data.tables.events import Events

__all__ = [
    "ActionSpace",
    "Columns",
    "ContextSchema",
    "Decomposition",
    "DiscountedSum",
    "Events",
    "Feature",
    "FittedPropensity",
    "LoggedData",
    "Metric",
    "PropensityModel",
    "ReturnWithin",
    "SessionsWithin",
    "ShardedLog",
    "SumWithin",
    "decompose",
    "parse_duration",
    "prepare_shards",
    "read_canonical",
    "write_canonical",
    "write_shards",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ActionSpace": "shpi.data.actions",
        "Columns": "shpi.data.columns",
        "ContextSchema": "shpi.data.schema",
        "Decomposition": "shpi.data.decomposition",
        "DiscountedSum": "shpi.data.rewards",
        "Events": "shpi.data.tables.events",
        "Feature": "shpi.data.schema",
        "FittedPropensity": "shpi.data.propensity",
        "LoggedData": "shpi.data.logged",
        "Metric": "shpi.data.question.metric",
        "PropensityModel": "shpi.data.propensity",
        "ReturnWithin": "shpi.data.rewards",
        "SessionsWithin": "shpi.data.rewards",
        "ShardedLog": "shpi.data.shards",
        "SumWithin": "shpi.data.rewards",
        "decompose": "shpi.data.decomposition",
        "parse_duration": "shpi.data.durations",
        "prepare_shards": "shpi.data.shards",
        "read_canonical": "shpi.data.canonical",
        "write_canonical": "shpi.data.canonical",
        "write_shards": "shpi.data.shards",
    },
)
