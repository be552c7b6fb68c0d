from __future__ import annotations

import asyncio
import inspect
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from shpi.errors import ConfigError, DataError
from shpi.serve import AsyncClient, Client, ServeError
from shpi.serve.web.server import Running

ITEMS = ["tea", "coffee"]


def test_the_client_over_a_real_socket(tmp_path: Path) -> None:
    with Running(tmp_path) as server:
        client = Client(server.url)
        decision = client.rank("u", {"hour": 1}, ITEMS, defer=True, exclude=["milk"], session="s")
        assert decision.action in ITEMS
        assert sum(item.propensity for item in decision.ranking) == pytest.approx(1)
        assert client.activate(decision.event_id)
        assert not client.activate(decision.event_id)
        assert client.reward(decision.event_id, 1.0, name="spend").known
        assert client.event(decision.event_id)["session"] == "s"
        again = client.rank("u", {"hour": 1}, ITEMS, event_id="mine")
        assert client.rank("u", {"hour": 1}, ITEMS, event_id="mine") == again
        with pytest.raises(ServeError, match="same body") as error:
            client.rank("v", {"hour": 1}, ITEMS, event_id="mine")
        assert error.value.status == 409
        done = client.batch(rank=[{"user": "w", "candidates": ITEMS}])
        assert done["rank"][0]["status"] == 200

        async def many() -> None:
            anew = AsyncClient(server.url)
            decisions = await asyncio.gather(*(anew.rank(f"u{n}", None, ITEMS) for n in range(8)))
            assert len({ranked.event_id for ranked in decisions}) == 8
            assert (await anew.reward(decisions[0].event_id, 2.0)).known
            assert (await anew.event(decisions[0].event_id))["user"] == "u0"

        asyncio.run(many())


def test_a_broken_connection_is_tried_again_with_the_same_id(tmp_path: Path) -> None:
    """A proxy that swallows the answers: the decision was stored, and is not made twice."""
    with Running(tmp_path) as server:
        port = int(server.url.rpartition(":")[2])
        listener = socket.create_server(("127.0.0.1", 0))

        def proxy() -> None:
            for _ in range(2):  # the request arrives, the answer does not
                caller, _ = listener.accept()
                with caller, socket.create_connection(("127.0.0.1", port)) as onward:
                    onward.sendall(caller.recv(65536))
                    onward.recv(65536)

        thread = threading.Thread(target=proxy, daemon=True)
        thread.start()
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", retries=1, pause=0.01, timeout=5)
        with pytest.raises(ServeError, match="an answer from the server"):
            client.rank("u", None, ITEMS, event_id="once")
        direct = Client(server.url).event("once")
        assert direct["event_id"] == "once"
        assert server.app is not None
        assert len(server.app.service.store) == 1  # type: ignore[arg-type]
        listener.close()


def test_nobody_there_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ServeError, match="start it"):
        Client(f"http://127.0.0.1:{port}", retries=1, pause=0.001).rank("u", None, ITEMS)
    with pytest.raises(ConfigError, match="URL"):
        Client("127.0.0.1:8400")


def test_the_clients_take_the_same_arguments() -> None:
    for name in ("rank", "activate", "reward", "batch", "event"):
        alone, together = getattr(Client, name), getattr(AsyncClient, name)
        assert inspect.signature(alone) == inspect.signature(together)
        assert inspect.iscoroutinefunction(together)
    assert inspect.signature(Client) == inspect.signature(AsyncClient)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), np.ones(2)])
def test_what_json_cannot_carry_is_named_before_anything_is_sent(value: object) -> None:
    with pytest.raises(DataError, match="JSON can carry"):
        Client("http://127.0.0.1:9").rank("u", {"x": value}, ITEMS)
