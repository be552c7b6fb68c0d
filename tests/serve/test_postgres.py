from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from shpi.serve.loop.compact import compact
from shpi.serve.loop.forget import forget
from shpi.serve.store import Activation, StoreUnavailableError
from tests.serve.database import Postgres, reason
from tests.serve.events import decision, reward
from tests.serve.http import Wire, on_wire

pytestmark = pytest.mark.skipif(reason() is not None, reason=reason() or "")
ITEMS = ["tea", "coffee", "milk"]


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with Postgres() as running:
        yield running


@pytest.fixture
def url(database: Postgres) -> str:
    import psycopg

    from shpi.serve.store.postgres import TABLE

    with psycopg.connect(database.url) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
    return database.url


def run(url: str, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    from shpi.serve.store.postgres import PostgresStore

    async def whole() -> Any:
        store = PostgresStore(url, timeout=5)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(whole())


def test_the_same_promises_as_files(url: str) -> None:
    async def work(store: Any) -> None:
        added = await asyncio.gather(*(store.add(decision(n)) for n in range(50)), store.add(decision(3)))
        assert [entry.new for entry in added].count(False) == 1
        again = await store.add(decision(7, body=b"{1}"))
        assert not again.new
        assert again.record == decision(7)
        assert await store.find("e7") == decision(7)
        assert await store.find("none") is None
        assert (await store.add(reward(7))).new
        assert not (await store.add(reward(7, value=9.0))).new
        assert await store.rewards("e7") == (reward(7),)
        assert (await store.add(Activation("e7", 1))).new
        assert await store.activated("e7")
        assert len(list(store.scan())) == 52
        assert store.next_seq() < store.next_seq()

    run(url, work)


def test_two_workers_give_one_answer(url: str) -> None:
    from shpi.serve.store.postgres import PostgresStore

    async def work(first: Any) -> None:
        second = PostgresStore(url)
        try:
            both = await asyncio.gather(
                *(
                    store.add(decision(n, user=name))
                    for n in range(40)
                    for store, name in ((first, "a"), (second, "b"))
                )
            )
            for left, right in zip(both[::2], both[1::2], strict=True):
                assert left.record == right.record
                assert left.new != right.new
            last, records = await first.since(0)
            assert records == []  # rows of the last seconds wait until no other can come before them
            await asyncio.sleep(2.3)
            last, records = await first.since(0)
            assert len(records) == 40
            assert (await first.since(last))[1] == []
        finally:
            await second.close()

    run(url, work)


def test_a_database_that_is_gone_is_an_error_until_it_is_back(database: Postgres, url: str) -> None:
    async def work(store: Any) -> None:
        await store.add(decision(1))
        database.stop()
        with pytest.raises(StoreUnavailableError, match="database"):
            await store.add(decision(2))
        with pytest.raises(StoreUnavailableError):
            await store.find("e1")
        assert store.failing
        database.start()
        assert (await store.add(decision(2))).new
        assert await store.find("e1") == decision(1)
        assert not store.failing

    run(url, work)


def test_a_service_on_postgres(url: str, tmp_path: Path) -> None:
    toml = f'[server]\nclock = "events"\n[store]\nkind = "postgres"\nurl = "{url}"\n'
    body = {"user": "u", "event_id": "same", "candidates": ITEMS, "time": 1.8e9}

    async def work(wire: Wire) -> bytes:
        answer = await wire.raw("POST", "/v1/rank", json.dumps(body).encode())
        assert answer[0] == 200
        for n in range(40):
            await wire.rank(user=f"u{n % 5}", candidates=ITEMS, event_id=f"e{n}", time=1.8e9 + 600 * n)
            await wire.call("POST", f"/v1/events/e{n}/reward", {"value": 1, "at": 1.8e9 + 600 * n})
        assert (await wire.call("POST", "/v1/rank", {**body, "user": "v"}))[0] == 409
        return answer[1]

    async def later(wire: Wire) -> bytes:
        return (await wire.raw("POST", "/v1/rank", json.dumps(body).encode()))[1]

    assert on_wire(tmp_path, work, toml) == on_wire(tmp_path, later, toml)
    logs, _ = compact(tmp_path)
    assert logs.audit().fit
    assert forget(tmp_path, "u1") == 16
    assert "u1" not in compact(tmp_path)[0].users.tolist()
