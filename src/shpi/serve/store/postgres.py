"""`PostgresStore`: the same records in one table, for several workers and machines.

A group of records is one INSERT, which skips ids that exist; those are then read. So two workers that get the
same id give the same answer. If the database is gone, the caller gets an error and may retry; the next group
reconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shpi.errors import MissingExtraError
from shpi.serve.store.base import Added, Listener, StoreUnavailableError
from shpi.serve.store.records import Decision, Record, Reward, decode, encode

try:
    import psycopg
except ImportError:  # pragma: no cover - the extra is part of the tests' environment
    raise MissingExtraError("psycopg", "postgres") from None

TABLE = "shpi_events"
_MAKE = f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
    seq bigserial PRIMARY KEY,
    key text NOT NULL UNIQUE,
    event_id text NOT NULL,
    kind text NOT NULL,
    user_id text,
    payload bytea NOT NULL,
    added timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS {TABLE}_event ON {TABLE} (event_id);
CREATE INDEX IF NOT EXISTS {TABLE}_user ON {TABLE} (user_id) WHERE user_id IS NOT NULL;
"""
_INSERT = f"""
INSERT INTO {TABLE} (key, event_id, kind, user_id, payload)
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[])
ON CONFLICT (key) DO NOTHING RETURNING key
"""
_LAG = 2.0  # seconds before a row is read: concurrent writes become visible out of order
_BLOCK = 5_000  # rows fetched at once


@dataclass(eq=False)
class _Waiting:
    key: str
    record: Record
    done: asyncio.Future[Added]


def _key(record: Record) -> str:
    if isinstance(record, Decision):
        return f"d\n{record.event_id}"
    return f"r\n{record.key}" if isinstance(record, Reward) else f"a\n{record.event_id}"


class PostgresStore:
    """Records in a table of Postgres."""

    def __init__(self, url: str, *, timeout: float = 10.0) -> None:
        self.url, self.timeout = url, timeout
        self.listener: Listener | None = None
        self.failing = False
        self._waiting: list[_Waiting] = []
        self._flusher: asyncio.Task[None] | None = None
        self._writer: Any = None
        self._reader: Any = None
        self._reading: asyncio.Lock | None = None
        self._known: dict[str, None] = {}  # ids that this worker stored recently
        self._seq = 0
        with self._plain() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(7236)")  # two workers may create the table
            connection.execute(_MAKE)
            last = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchone()
        self.at_start = int(last[0]) if last else 0

    def _plain(self) -> Any:
        try:
            return psycopg.connect(self.url, connect_timeout=max(int(self.timeout), 1))
        except psycopg.Error as error:
            raise _unavailable(error) from None

    def next_seq(self) -> int:
        """A number larger than all earlier ones of this worker, and close to those of other workers."""
        self._seq = max(self._seq + 1, time.time_ns() // 1000)
        return self._seq

    # ------------------------------------------------------------------ adding

    async def add(self, record: Record) -> Added:
        """Store a record, unless one with its id is there."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(_key(record), record, loop.create_future())
        self._waiting.append(waiting)
        if self._flusher is None or self._flusher.done():
            self._flusher = loop.create_task(self._flush())
        return await waiting.done

    async def _flush(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # let other ready requests join the group
            group, self._waiting = self._waiting, []
            try:
                async with asyncio.timeout(self.timeout):
                    added = await self._insert(group)
                self.failing = False
            except (psycopg.Error, OSError, TimeoutError) as error:
                self.failing = True
                await self._drop()
                for waiting in group:
                    if not waiting.done.done():
                        waiting.done.set_exception(_unavailable(error))
                continue
            if self.listener is not None:
                self.listener([stored.record for stored in added if stored.new])
            for waiting, stored in zip(group, added, strict=True):
                if not waiting.done.done():
                    waiting.done.set_result(stored)

    async def _insert(self, group: list[_Waiting]) -> list[Added]:
        first: dict[str, _Waiting] = {}
        for waiting in group:
            first.setdefault(waiting.key, waiting)  # of equal ids in one group, the first counts
        rows = list(first.values())
        columns = (
            [waiting.key for waiting in rows],
            [waiting.record.event_id for waiting in rows],
            [waiting.key[0] for waiting in rows],
            [waiting.record.user if isinstance(waiting.record, Decision) else None for waiting in rows],
            [encode(waiting.record) for waiting in rows],
        )
        connection = await self._connected()
        async with connection.transaction():
            cursor = await connection.execute(_INSERT, columns)
            new = {row[0] for row in await cursor.fetchall()}
        old = [key for key in first if key not in new]
        stored = {key: first[key].record for key in new}
        if old:
            cursor = await connection.execute(f"SELECT key, payload FROM {TABLE} WHERE key = ANY(%s)", (old,))
            stored |= {key: decode(payload) for key, payload in await cursor.fetchall()}
        for waiting in rows:
            if isinstance(waiting.record, Decision):
                self._known[waiting.record.event_id] = None
        while len(self._known) > 100_000:
            del self._known[next(iter(self._known))]
        return [
            Added(stored[waiting.key], waiting.key in new and first[waiting.key] is waiting)
            for waiting in group
        ]

    async def _connected(self) -> Any:
        if self._writer is None or self._writer.closed:
            self._writer = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        return self._writer

    async def _drop(self) -> None:
        for connection in (self._writer, self._reader):
            if connection is not None:
                with contextlib.suppress(psycopg.Error, OSError):
                    await connection.close()
        self._writer = self._reader = None

    # ------------------------------------------------------------------ reading

    async def _rows(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        if self._reading is None:
            self._reading = asyncio.Lock()
        async with self._reading:
            try:
                async with asyncio.timeout(self.timeout):
                    if self._reader is None or self._reader.closed:
                        self._reader = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
                    cursor = await self._reader.execute(query, values)
                    fetched: list[Any] = await cursor.fetchall()
                    return fetched
            except (psycopg.Error, OSError, TimeoutError) as error:
                self._reader = None
                raise _unavailable(error) from None

    async def find(self, event_id: str) -> Decision | None:
        """The decision with an id."""
        rows = await self._rows(f"SELECT payload FROM {TABLE} WHERE key = %s", (f"d\n{event_id}",))
        record = decode(rows[0][0]) if rows else None
        assert record is None or isinstance(record, Decision)
        return record

    def knows(self, event_id: str) -> bool:
        """Whether this worker recently stored a decision with this id; another worker may have, too."""
        return event_id in self._known

    async def rewards(self, event_id: str) -> tuple[Reward, ...]:
        """The rewards of a decision so far."""
        query = f"SELECT payload FROM {TABLE} WHERE event_id = %s AND kind = 'r' ORDER BY seq"
        return tuple(decode(row[0]) for row in await self._rows(query, (event_id,)))  # type: ignore[misc]

    async def activated(self, event_id: str) -> bool:
        """Whether a deferred decision was activated."""
        return bool(await self._rows(f"SELECT 1 FROM {TABLE} WHERE key = %s", (f"a\n{event_id}",)))

    def scan(self) -> Iterator[Record]:
        """All records, oldest first."""
        with self._plain() as connection, connection.cursor(name="shpi_scan") as cursor:
            cursor.itersize = _BLOCK
            cursor.execute(f"SELECT payload FROM {TABLE} ORDER BY seq")
            for row in cursor:
                yield decode(row[0])

    async def since(self, seq: int) -> tuple[int, list[Record]]:
        """The next records of all workers after ``seq``, for the monitor, and the ``seq`` of the last one."""
        query = f"""SELECT seq, payload FROM {TABLE} WHERE seq > %s
                    AND added < now() - make_interval(secs => {_LAG}) ORDER BY seq LIMIT {_BLOCK}"""
        rows = await self._rows(query, (seq,))
        return (rows[-1][0] if rows else seq), [decode(row[1]) for row in rows]

    def forget(self, user: str) -> int:
        """Remove everything about a user, and return the number of records."""
        with self._plain() as connection:
            cursor = connection.execute(
                f"""DELETE FROM {TABLE} WHERE event_id IN
                    (SELECT event_id FROM {TABLE} WHERE user_id = %s)""",
                (user,),
            )
            return int(cursor.rowcount)

    def forget_before(self, moment: int) -> int:
        """Remove the records that were stored before a given time, and return how many."""
        with self._plain() as connection:
            cursor = connection.execute(
                f"DELETE FROM {TABLE} WHERE added < to_timestamp(%s)", (moment / 1e6,)
            )
            return int(cursor.rowcount)

    async def close(self) -> None:
        """Finish pending writes and disconnect."""
        if self._flusher is not None:
            await self._flusher
        await self._drop()


def _unavailable(error: BaseException) -> StoreUnavailableError:
    return StoreUnavailableError(
        expected="a database that answers",
        found=type(error).__name__,  # not its message, which may hold parts of a row
        remedy="send the same request again, with the same id; look at Postgres",
    )
