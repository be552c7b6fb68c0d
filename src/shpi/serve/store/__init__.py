"""Durable records of decisions and rewards, written to disk before a request is answered.

    records    decisions, activations, rewards: what is stored
    frames     a segment file: length, checksum, record
    journal    segments of one folder, written by one process at a time
    group      group commit: a thread that flushes many records at once
    files      FileStore: records in files, each id stored once
    base       the protocol that the stores share
    clock      times that never run backwards

`shpi.serve.store.postgres` has a store on Postgres, for several workers.
"""

from shpi.serve.store.base import Added, Store, StoreUnavailableError
from shpi.serve.store.clock import Clock
from shpi.serve.store.files import FileStore
from shpi.serve.store.records import Activation, Decision, Record, Reward

__all__ = [
    "Activation",
    "Added",
    "Clock",
    "Decision",
    "FileStore",
    "Record",
    "Reward",
    "Store",
    "StoreUnavailableError",
]
