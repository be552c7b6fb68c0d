"""Passes over a log: map over shards of whole users, then add.

Serial         one shard after the other
Processes      the same in processes of this machine
Resumable      either, keeping the result of every shard: a killed run continues where it stopped
add_up         sums over all shards in a fixed tree: bit-equal whatever the executor and the order
collect        the results of all shards, in their order
sample         some users by their hash, the same ones whatever the shards
audit_shards   the audit of a log in shards
"""

from shpi._core.executors import Executor, Processes, Serial
from shpi.passes.audit import audit_shards
from shpi.passes.over import add_up, collect, sample
from shpi.passes.resume import Resumable
from shpi.passes.tree import TreeSum, tree_sum

__all__ = [
    "Executor",
    "Processes",
    "Resumable",
    "Serial",
    "TreeSum",
    "add_up",
    "audit_shards",
    "collect",
    "sample",
    "tree_sum",
]
