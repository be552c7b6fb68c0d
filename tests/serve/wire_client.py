"""The batches of a client, straight to an application in a loop of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from shpi.serve import App, Service
from shpi.serve.loop.background import look
from tests.serve.http import Wire


class WireClient:
    """Sends the traffic of a shop without a socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = asyncio.new_event_loop()

    def __enter__(self) -> WireClient:
        self.app = App(Service(self.folder))
        self.wire = Wire(self.app)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.run_until_complete(self.app.stop())
        self.loop.close()

    def batch(self, **entries: Any) -> dict[str, list[dict[str, Any]]]:
        work = self.wire.raw("POST", "/v1/batch", json.dumps(entries).encode())
        status, answer, _ = self.loop.run_until_complete(work)
        assert status == 200, answer
        answers: dict[str, list[dict[str, Any]]] = json.loads(answer)
        return answers

    def look(self) -> Any:
        return look(self.app.service)
