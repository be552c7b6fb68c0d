"""Removes everything about one user: events, rewards, and the logs made from them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from shpi.files.atomic import new_file
from shpi.serve.loop.compact import LOG
from shpi.serve.settings import Settings, secret
from shpi.serve.store.files import read_records
from shpi.serve.store.frames import MAGIC, frame, read_frames
from shpi.serve.store.journal import Journal, segments
from shpi.serve.store.records import Decision, decode


def forget(folder: Path, user: str) -> int:
    """Remove a user, and return the number of records. With file storage, the server must not be running.

    Compacted logs are removed as a whole: the next compaction writes them without the user. Policies keep
    what they have learned; they hold no data of users except salted hashes.
    """
    settings = Settings.read(folder)
    if settings.store.kind == "postgres":
        from shpi.serve.store.postgres import PostgresStore

        removed = PostgresStore(secret(settings.store.url)).forget(user)
    else:
        removed = _from_files(folder, user)
    for path in (folder / LOG, *folder.glob("cycles/*/*.parquet")):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    return removed


def _from_files(folder: Path, user: str) -> int:
    from shpi.serve.service import EVENTS

    events = folder / EVENTS
    journal = Journal(events)  # an error while a server runs; cuts off a torn end
    try:
        mine = {
            record.event_id
            for record in read_records(events)
            if isinstance(record, Decision) and record.user == user
        }
        removed = 0
        for path in segments(events):
            kept, gone = [], 0
            for _, payload in read_frames(path):
                if decode(payload).event_id in mine:
                    gone += 1
                else:
                    kept.append(frame(payload))
            if gone:
                with new_file(path) as file:
                    file.write(MAGIC + b"".join(kept))
            removed += gone
        for aside in events.glob("*.torn"):
            aside.unlink()
        return removed
    finally:
        journal.close()
